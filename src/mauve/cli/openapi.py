"""`mauve openapi`."""

from pathlib import Path

import click
import msgspec

from mauve.cli.frame import answer, on_data


@click.command()
@on_data
def openapi(*, data: Path | None, as_json: bool) -> None:
    """Print the API reference as an OpenAPI document, as `GET /openapi.json` serves it."""
    from mauve.openapi.document import document  # noqa: PLC0415 - slow to import

    del data  # Every command takes it; the document is the same for all.
    told = document()
    answer(told, as_json=as_json, text=msgspec.json.format(msgspec.json.encode(told)).decode())
