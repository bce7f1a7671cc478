"""What a person sees of a long command."""

from mauve.cli.progress import NoProgress, RewrittenLine, StageLines


def watch(progress):
    progress.begin("thinking", 0)
    progress.begin("packing", 2 * 2**20)
    progress.add(2**20)


def test_on_a_terminal_one_line_is_written_anew_and_gone_at_the_end(capsys):
    line = RewrittenLine()
    watch(line)
    line._show()  # noqa: SLF001 - as soon as a tenth of a second has passed
    line.end()
    shown = capsys.readouterr().err
    assert shown.split("\r\033[K") == ["", "thinking", "packing 0 % of 2 MB", "packing 50 % of 2 MB", ""]


def test_elsewhere_each_stage_is_a_line(capsys):
    watch(StageLines())
    assert capsys.readouterr().err == "thinking\npacking, 2 MB\n"


def test_programs_see_nothing(capsys):
    watch(NoProgress())
    assert capsys.readouterr().err == ""
