"""What a person sees of a long command."""

from types import SimpleNamespace

from mauve.cli import progress as under_test
from mauve.cli.progress import NoProgress, RewrittenLine, StageLines
from support.clocks import Ticks


def watch(progress):
    progress.begin("thinking", 0)
    progress.begin("packing", 2 * 2**20)
    progress.add(2**20)


def test_on_a_terminal_one_line_is_written_anew_and_gone_at_the_end(capsys, monkeypatch):
    ticks = Ticks()
    monkeypatch.setattr(under_test, "time", SimpleNamespace(monotonic=ticks))
    line = RewrittenLine()
    watch(line)
    ticks.now_s += 0.1
    line.add(0)
    line.end()
    shown = capsys.readouterr().err
    assert shown.split("\r\033[K") == ["", "thinking", "packing 0 % of 2 MB", "packing 50 % of 2 MB", ""]


def test_elsewhere_each_stage_is_a_line(capsys):
    watch(StageLines())
    assert capsys.readouterr().err == "thinking\npacking, 2 MB\n"


def test_programs_see_nothing(capsys):
    watch(NoProgress())
    assert capsys.readouterr().err == ""
