"""How a long command shows its progress."""

from types import SimpleNamespace

from mauve.cli import output
from mauve.cli.output import StageLines, StatusLine
from mauve.maintenance import Progress
from support.clocks import Ticks


def show(progress):
    progress.begin("thinking", 0)
    progress.begin("packing", 2 * 2**20)
    progress.add(2**20)


def test_on_a_terminal_one_line_is_redrawn_and_cleared_at_the_end(capsys, monkeypatch):
    ticks = Ticks()
    monkeypatch.setattr(output, "time", SimpleNamespace(monotonic=ticks))
    line = StatusLine()
    show(line)
    ticks.now_s += 0.1
    line.add(0)
    line.end()
    shown = capsys.readouterr().err
    assert shown.split("\r\033[K") == ["", "thinking", "packing 0 % of 2 MB", "packing 50 % of 2 MB", ""]


def test_off_a_terminal_each_stage_is_a_line(capsys):
    show(StageLines())
    assert capsys.readouterr().err == "thinking\npacking, 2 MB\n"


def test_with_json_nothing_is_shown(capsys):
    show(Progress())
    assert capsys.readouterr().err == ""
