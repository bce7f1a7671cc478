"""The `mauve` command."""

import os
import sys
from typing import Final, NoReturn

import click

from mauve.access.vault import VaultError
from mauve.cli.app import app
from mauve.cli.backup import backup, restore
from mauve.cli.completion import completion
from mauve.cli.demo import demo
from mauve.cli.doctor import doctor
from mauve.cli.erase import erase_user
from mauve.cli.export import export
from mauve.cli.import_ import import_
from mauve.cli.key import key
from mauve.cli.mcp import mcp
from mauve.cli.move import move
from mauve.cli.openapi import openapi
from mauve.cli.options import UsageError
from mauve.cli.org import org
from mauve.cli.ready import ready
from mauve.cli.serve import serve
from mauve.cli.token import token
from mauve.cli.user import user
from mauve.cli.webhooks import webhooks
from mauve.config import SettingError
from mauve.control.operator import RefusedError
from mauve.core.problems import Problem
from mauve.logs import configure_logs, masked_text
from mauve.maintenance.errors import MaintenanceFailedError, MaintenanceRefusedError
from mauve.server.child_process import ServeRefusedError
from mauve.stores import ForeignDataError, NewerSchemaError, StoreUnavailableError, UnsupportedServerError
from mauve.stores.backups import BackupStoreError
from mauve.stores.data_directory import DirectoryError, HeldError
from mauve.stores.imports import ImportOutdatedError
from mauve.stores.warehouse import RowsRefusedError, WarehouseUnavailableError

_PRIVATE_UMASK: Final = 0o077
_USAGE_ERRORS: Final = (
    DirectoryError,
    HeldError,
    ImportOutdatedError,
    MaintenanceRefusedError,
    UsageError,
    Problem,
    RefusedError,
    SettingError,
    VaultError,
)
_FAILURES: Final = (
    BackupStoreError,
    ForeignDataError,
    MaintenanceFailedError,
    NewerSchemaError,
    RowsRefusedError,
    UnsupportedServerError,
)


@click.group(no_args_is_help=False)
@click.version_option(package_name="mauve", message="mauve %(version)s")
def command() -> None:
    """Metrics for developers who run several apps."""


for part in (
    serve,
    ready,
    doctor,
    org,
    token,
    user,
    app,
    key,
    webhooks,
    demo,
    backup,
    restore,
    move,
    export,
    erase_user,
    import_,
    openapi,
    mcp,
):
    command.add_command(part)
command.add_command(completion)


def main() -> None:
    """Run a command. Exit 2 on a usage error and 1 on a failure, with one sentence on standard error."""
    os.umask(_PRIVATE_UMASK)
    configure_logs("auto", process="command")  # on standard error: only the result goes to standard output
    try:
        _check_arguments(sys.argv)
        code = command(standalone_mode=False)
    except click.ClickException as error:
        _fail(2, f"{error.format_message().rstrip('.')}: see '{_command_path(error)} --help'")
    except ServeRefusedError as error:
        _fail(error.exit_code, str(error))
    except _USAGE_ERRORS as error:
        _fail(2, str(error))
    except _FAILURES as error:
        _fail(1, str(error))
    except (StoreUnavailableError, WarehouseUnavailableError) as error:
        _fail(1, f"the data could not be read or written ({error}): run 'mauve doctor'")
    except OSError as error:
        _fail(
            1,
            f"{error.strerror or error} ({error.filename or 'input or output'}): check the path and its permissions",
        )
    except (KeyboardInterrupt, click.Abort):
        _fail(130, "stopped")
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
    one_line = masked_text(" ".join(message.split()))
    sys.stderr.write(f"mauve: {one_line}\n")
    sys.exit(code)
