"""`mauve doctor`."""

from pathlib import Path

import click

from mauve.cli.options import data_options, settings_for
from mauve.cli.output import print_result


@click.command()
@data_options
def doctor(*, data: Path | None, as_json: bool) -> None:
    """Check the data directory, engines, versions, clock and disk, and say what to fix."""
    from mauve.server.doctor import run_checks  # noqa: PLC0415 - slow to import

    findings = run_checks(settings_for(data))
    healthy = all(finding.ok for finding in findings)
    lines = [f"{'ok ' if finding.ok else 'BAD'}  {finding.name.ljust(15)} {finding.detail}" for finding in findings]
    lines += [f"to do: {finding.advice}" for finding in findings if not finding.ok]
    print_result({"ok": healthy, "checks": findings}, as_json=as_json, text="\n".join(lines))
    raise click.exceptions.Exit(0 if healthy else 1)
