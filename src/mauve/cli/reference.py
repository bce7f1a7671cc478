"""`mauve openapi` and `mauve completion`."""

from pathlib import Path
from typing import Final

import click
import msgspec
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from mauve.cli.options import data_options, quiet_options
from mauve.cli.output import print_result

_SHELLS: Final[dict[str, type[ShellComplete]]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_VARIABLE: Final = "_MAUVE_COMPLETE"  # click's variable for completion requests
_PLACES: Final = """\b
Save it where the shell looks for completions, and start a new shell:
  bash  mauve completion bash > ~/.local/share/bash-completion/completions/mauve
  zsh   mauve completion zsh > FOLDER/_mauve, for a FOLDER in $fpath
  fish  mauve completion fish > ~/.config/fish/completions/mauve.fish
"""


@click.command(epilog=_PLACES)
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@quiet_options
@click.pass_context
def completion(context: click.Context, *, shell: str, data: Path | None, as_json: bool) -> None:
    """Print the script that completes commands, options and their choices in a shell."""
    del data  # Every command takes it; the script does not depend on it.
    script = _SHELLS[shell](context.find_root().command, {}, "mauve", _VARIABLE).source()
    print_result(script, as_json=as_json, text=script.rstrip("\n"))


@click.command()
@data_options
def openapi(*, data: Path | None, as_json: bool) -> None:
    """Print the API reference as an OpenAPI document, as `GET /openapi.json` serves it."""
    from mauve.openapi.document import document  # noqa: PLC0415 - slow to import

    del data  # Every command accepts it; the document does not depend on it.
    described = document()
    print_result(described, as_json=as_json, text=msgspec.json.format(msgspec.json.encode(described)).decode())
