"""`mauve mcp` before it serves: each mistake gets one sentence that says what to do."""

import signal
import subprocess
import sys

import pytest

from mauve.cli.main import main
from support.agents import agent
from support.service import MAUVE, PATIENCE_S, clean_environment, mauve

TOKEN = "ctl_live_" + "0" * 56
NOWHERE = "http://127.0.0.1:9"

pytestmark = pytest.mark.embedded


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"MAUVE_TOKEN": TOKEN}, "MAUVE_URL is not set: set it to the service's address"),
        ({"MAUVE_URL": "metrics.example.com", "MAUVE_TOKEN": TOKEN}, "MAUVE_URL must be an address like https://"),
        ({"MAUVE_URL": NOWHERE}, "MAUVE_TOKEN is not set: mint a control token"),
        (
            {"MAUVE_URL": NOWHERE, "MAUVE_TOKEN": "sk_live_" + "0" * 40},
            "is not a control token (ctl_live_…): mint",
        ),
        ({"MAUVE_URL": NOWHERE, "MAUVE_TOKEN": TOKEN, "MAUVE_TOKEN_FILE": "t"}, "both set: keep one of them"),
        ({"MAUVE_URL": NOWHERE, "MAUVE_TOKEN_FILE": "missing"}, "MAUVE_TOKEN_FILE cannot be read"),
    ],
    ids=["no address", "no scheme", "no token", "a server key", "two tokens", "no file"],
)
def test_a_mistake_in_the_settings_is_named(tmp_path, environment, sentence):
    done = mauve(tmp_path / "unused", "mcp", **environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert sentence in done.stderr
    assert "sk_live_0" not in done.stderr
    assert not (tmp_path / "unused").exists(), "it needs no data directory"


def test_without_the_extra_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "mauve.agents.server", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setattr("sys.argv", ["mauve", "mcp"])
    monkeypatch.setenv("MAUVE_URL", NOWHERE)
    monkeypatch.setenv("MAUVE_TOKEN", TOKEN)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("mauve: the MCP tools are an extra: run pip install 'mauve[mcp]'")
    assert said.count("\n") == 1


def test_a_service_that_is_away_is_reported_to_the_agent_and_may_come_back():
    from mcp import MCPError  # noqa: PLC0415 - slow, and every process collects all tests

    with agent(NOWHERE, TOKEN, "stdio") as connected:
        away = connected.refusal("list_apps")
        assert "the service does not answer" in away["error"]
        assert away["retry_after_s"] == 5
        with pytest.raises(MCPError, match="the service does not answer"):
            connected.tools()


def test_an_interrupt_ends_it_at_once():
    command = subprocess.Popen(
        [str(MAUVE), "mcp"],
        env=clean_environment(MAUVE_URL=NOWHERE, MAUVE_TOKEN=TOKEN),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with command:
        command.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        command.stdin.flush()
        assert command.stdout.readline().startswith(b'{"jsonrpc":"2.0","id":1')
        command.send_signal(signal.SIGINT)
        assert command.wait(PATIENCE_S) == -signal.SIGINT, "while it waits for the next line"
