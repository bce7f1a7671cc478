"""Commands start fast: they import what they use, and nothing else."""

import os
import subprocess
import sys

import click
import pytest

from mauve.cli.main import LazyGroup, command

SLOW = {"alembic", "chdb", "cryptography", "granian", "mcp", "nats", "numpy", "pyarrow", "sqlalchemy", "starlette"}
LOGGING = {"asyncio", "structlog"}
# Of what a command on an empty catalog could need, it uses the database and the log alone.
UNUSED = {"chdb", "granian", "mcp", "nats", "numpy", "pyarrow", "starlette"}
PROGRAM = """
import sys
from contextlib import suppress
from mauve.cli.main import main
for arguments in " ".join(sys.argv[1:]).split(","):
    sys.argv[1:] = arguments.split()
    with suppress(SystemExit):
        main()
print(*{name.partition(".")[0] for name in sys.modules}, file=sys.stderr)
"""
CONTEXT = click.Context(command)
NAMES = command.list_commands(CONTEXT)


def imported_by(*arguments, data=""):
    """Return the packages that commands, separated by commas, import, whether they succeed or not."""
    environment = {**os.environ, "MAUVE_DATA": str(data)} if data else None
    program = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment)
    return set(done.stderr.splitlines()[-1].split())


def test_the_list_of_commands_imports_none_of_them():
    assert imported_by("--help,--version,completion bash,nonsense") & (SLOW | LOGGING) == set()


def test_the_help_of_a_command_imports_nothing_slow():
    assert imported_by(",".join(f"{name} --help" for name in NAMES)) & (SLOW | LOGGING) == set()


def test_a_health_check_imports_nothing_slow(tmp_path):
    assert imported_by("ready", data=tmp_path) & (SLOW | LOGGING) == set()


def test_a_command_without_data_imports_no_engine(tmp_path):
    assert imported_by("app list,key mint --app app_1 --kind sk", data=tmp_path) & SLOW == set()


def test_a_command_on_the_catalog_imports_no_other_engine(tmp_path):
    imported = imported_by("org create Acme,app create Blog,app list", data=tmp_path / "data")
    assert "sqlalchemy" in imported
    assert imported & UNUSED == set()


def callbacks_of(found):
    if isinstance(found, click.Group):
        return [callback for each in found.commands.values() for callback in callbacks_of(each)]
    return [found.callback]


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"completion", "ready"}))
def test_a_command_that_may_log_sets_up_logging_first(name):
    """Otherwise it would log to standard output."""
    wrappers = {callback.__code__.co_qualname for callback in callbacks_of(command.get_command(CONTEXT, name))}
    assert wrappers == {"data_options.<locals>.run"}


@pytest.mark.parametrize("name", NAMES)
def test_the_list_of_commands_quotes_the_help_of_each(name):
    assert isinstance(command, LazyGroup)
    found = command.get_command(CONTEXT, name)
    shown = click.formatting.HelpFormatter(width=1000)
    command.format_commands(CONTEXT, shown)
    assert f"{found.get_short_help_str(limit=1000)}\n" in shown.getvalue()
