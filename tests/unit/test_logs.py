"""Log lines: format, redaction, and what happens if they cannot be written.

Proves: full-stderr.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mauve.core.secret import masked_text

PROGRAM = """
import structlog
from mauve.logs import configure_logs
configure_logs({style!r}, process="test")
log = structlog.get_logger()
log.info("seen", text="key sk_live_abcdefgh and\\r\\nwhsec_abcd==", number=1)
try:
    raise ValueError("ctl_live_0123456789abcdef")
except ValueError:
    log.exception("failed")
"""


def logged(style):
    program = PROGRAM.format(style=style)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr


def test_off_a_terminal_every_line_is_one_json_object_without_credentials():
    lines = [json.loads(line) for line in logged("auto").splitlines()]
    assert [line["event"] for line in lines] == ["seen", "failed"]
    assert lines[0]["text"] == "key sk_live_… and\r\nwhsec_…"
    assert (lines[0]["number"], lines[0]["process"], lines[0]["level"]) == (1, "test", "info")
    assert "ctl_live_…" in lines[1]["exception"]


@pytest.mark.parametrize("style", ["auto", "json", "console"])
def test_no_style_shows_a_credential(style):
    text = logged(style)
    assert "seen" in text
    assert "abcdefgh" not in text
    assert "0123456789abcdef" not in text


def test_logging_to_a_full_disk_does_not_fail():
    program = PROGRAM.format(style="json") + "print('continued')\n"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, check=False)
    assert done.stdout == b"continued\n"


@pytest.mark.parametrize(
    "credential",
    ["sk_live_x1", "pk_live_x1", "sk_test_x1", "ctl_live_x1", "ctl_test_x1", "whsec_x1/+=", "polar_whs_x1"],
)
def test_every_kind_of_credential_is_reduced_to_its_prefix(credential):
    assert masked_text(f"a {credential}, b") == f"a {credential[: credential.rindex('x1')]}…, b"
