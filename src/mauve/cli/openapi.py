"""`mauve openapi`."""

from pathlib import Path

import click
import msgspec

from mauve.cli.options import data_options
from mauve.cli.output import print_result


@click.command()
@data_options
def openapi(*, data: Path | None, as_json: bool) -> None:
    """Print the API reference as an OpenAPI document, as `GET /openapi.json` serves it."""
    from mauve.openapi.document import document  # noqa: PLC0415 - slow to import

    del data  # Every command accepts it; the document does not depend on it.
    described = document()
    print_result(described, as_json=as_json, text=msgspec.json.format(msgspec.json.encode(described)).decode())
