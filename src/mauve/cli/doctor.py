"""`mauve doctor`."""

from pathlib import Path

import click

from mauve.cli.frame import answer, on_data, settings_at


@click.command()
@on_data
def doctor(*, data: Path | None, as_json: bool) -> None:
    """Check the data directory, engines, versions, clock and disk; say what to do."""
    from mauve.server.doctor import examine  # noqa: PLC0415 - slow to import

    findings = examine(settings_at(data))
    healthy = all(finding.ok for finding in findings)
    lines = [f"{'ok ' if finding.ok else 'BAD'}  {finding.name.ljust(15)} {finding.detail}" for finding in findings]
    lines += [f"to do: {finding.advice}" for finding in findings if not finding.ok]
    answer({"ok": healthy, "checks": findings}, as_json=as_json, text="\n".join(lines))
    raise click.exceptions.Exit(0 if healthy else 1)
