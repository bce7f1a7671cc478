"""The `mauve` command.

Commands are imported when they run: some are slow to import, and `mauve --help` should be fast.
"""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Final, NoReturn

import click

from mauve.cli.options import UsageError
from mauve.core.secret import masked_text

_PRIVATE_UMASK: Final = 0o077
_COMMANDS: Final[Mapping[str, tuple[str, str]]] = {  # module and first sentence of the help
    "app": ("app", "Apps."),
    "backup": ("backup", "Back up all data into a file or a bucket, or list the backups there."),
    "completion": ("reference", "Print the script that completes commands, options and their choices in a shell."),
    "demo": ("demo", "Generate three demo apps with realistic history, to explore with 'mauve serve'."),
    "doctor": ("serve", "Check the data directory, engines, versions, clock and disk, and say what to fix."),
    "erase-user": (
        "export",
        "Erase a user from an app: remove everything that identifies them; counts and sums do not change.",
    ),
    "export": (
        "export",
        "Export an app's events, payments and subscription versions, as lines of JSON or as Parquet files.",
    ),
    "import": ("import_", "Import history from files, list imports, or undo one."),
    "key": ("credentials", "Data-plane keys."),
    "mcp": ("mcp", "Serve metrics to an agent over standard input and output (MCP), from any machine."),
    "move": ("backup", "Move an installation from local files to the servers that the settings name."),
    "openapi": ("reference", "Print the API reference as an OpenAPI document, as `GET /openapi.json` serves it."),
    "org": ("org", "Organizations: create, list, suspend, and set limits."),
    "ready": ("serve", "Ask the running service on this machine whether it is ready; exit 1 if not."),
    "restore": ("backup", "Restore a backup into a new or empty data directory."),
    "serve": ("serve", "Run the service until it receives SIGTERM or SIGINT."),
    "token": ("credentials", "Control tokens, which an organization's programs use to manage its apps."),
    "user": ("user", "Dashboard users."),
    "webhooks": ("webhooks", "Billing webhooks."),
}


class LazyGroup(click.Group):
    """A group that imports a command when it runs, or when its own help is shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = import_module(f"mauve.cli.{_COMMANDS[cmd_name][0]}")
        commands = [value for value in vars(module).values() if isinstance(value, click.Command)]
        return next(each for each in commands if each.name == cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        width = formatter.width - 6 - max(map(len, names))  # as click does
        with formatter.section("Commands"):
            formatter.write_dl([(name, _first_words(_COMMANDS[name][1], width)) for name in names])


def _first_words(text: str, width: int) -> str:
    return click.Command(None, help=text).get_short_help_str(width)


@click.group(cls=LazyGroup, no_args_is_help=False)
@click.version_option(package_name="mauve", message="mauve %(version)s")
def command() -> None:
    """Metrics for developers who run several apps."""


def main() -> None:
    """Run a command. Exit 2 on a usage error and 1 on a failure, with one sentence on standard error."""
    os.umask(_PRIVATE_UMASK)
    try:
        _check_arguments(sys.argv)
        code = command(standalone_mode=False)
    except click.ClickException as error:
        _fail(2, f"{error.format_message().rstrip('.')}: see '{_command_path(error)} --help'")
    except (KeyboardInterrupt, click.Abort):
        _fail(130, "stopped")
    except UsageError as error:
        _fail(2, str(error))
    except Exception as error:  # noqa: BLE001 - unexpected errors are reraised
        from mauve.cli.failures import outcome_of  # noqa: PLC0415 - slow to import

        _fail(*outcome_of(error))
    sys.exit(code if isinstance(code, int) else 0)


def _check_arguments(arguments: list[str]) -> None:
    try:
        "".join(arguments).encode()
    except UnicodeEncodeError:
        raise UsageError("an argument is not valid UTF-8: check it for stray bytes") from None


def _command_path(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return "mauve" if context is None else context.command_path


def _fail(code: int, message: str) -> NoReturn:
    sys.stderr.write(f"mauve: {masked_text(' '.join(message.split()))}\n")
    sys.exit(code)
