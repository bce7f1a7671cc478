"""The README's programs run against the real service as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.service import running, token_for, until_loaded

from mauve_metrics import Control, Metrics
from stub import PATIENCE_S, eventually

HERE = Path(__file__).parents[1]
PROGRAMS = re.findall(r"^```python\n(.*?)^```", (HERE / "README.md").read_text(), re.MULTILINE | re.DOTALL)
PRINTED = [
    "Stats(queued=0, accepted=4, rejected=0, dropped=0, expired=0, retries=0)\n",
    "",
    "",
    "",
    "True\n",
    "",
    r"\d{4}-\d\d-\d\d eur 1999\n",
    r"proj_\w+\n\[.*'My better app'.*\] \[AppKey\(.*\)\] \[MauRow\(mau=0\)\]\n",
]


@pytest.fixture(scope="module")
def mauve_service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("service") / "data", "--workers", "1") as service:
        yield service


def test_every_program_in_the_readme_does_what_it_says(mauve_service, tmp_path):
    token = token_for(mauve_service.data)
    control = Control(token, url=mauve_service.url, timeout=PATIENCE_S)
    app = control.create_app("Readme")
    eventually(lambda: all(key.mirrored_at for key in control.keys(app.app_id)))
    for program, printed in zip(PROGRAMS, PRINTED, strict=True):
        for placeholder, value in (
            ("sk_live_…", app.sk_key),
            ("ctl_live_…", token),
            ("https://ingest.example.com", mauve_service.ingest_url),
            ("https://mauve.example.com", mauve_service.url),
        ):
            program = program.replace(placeholder, value)  # noqa: PLW2901
        if "SIGTERM" in program:
            program += "signal.raise_signal(signal.SIGTERM)\nraise AssertionError\n"  # noqa: PLW2901
        if "Metrics(" in program:
            until_loaded(mauve_service)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(HERE / "src")},
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), program
        assert re.fullmatch(printed if "\\" in printed else re.escape(printed), done.stdout), done.stdout
    counts = {row.name: row.count for row in Metrics(app.sk_key, url=mauve_service.url).event_names().rows}
    assert counts == {"report_opened": 3, "user_signup": 1, "invoice_sent": 1, "job_started": 1, "row_processed": 3000}
