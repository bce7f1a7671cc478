"""Every problem, in both envelopes, byte for byte. `python tests/golden/test_errors.py` rewrites the files."""

import json
from pathlib import Path

import pytest

from mauve.core import problems
from mauve.core.problems import Code, Problem
from mauve.web.envelopes import STATUS_OF, control_reply, data_reply

FOLDER = Path(__file__).parent / "errors"
ENVELOPES = {"control": control_reply, "data": data_reply}
RESET_AT = 1_796_083_200_000  # 2026-12-01
EXAMPLES = {
    Code.NOT_FOUND: problems.not_found(),
    Code.QUERIES_SPENT: Problem(Code.QUERIES_SPENT, "what to do about it", reset_at=RESET_AT),
    Code.RATE_LIMITED: Problem(Code.RATE_LIMITED, "what to do about it", retry_after_s=7),
    Code.RAW_SCANS_SPENT: Problem(Code.RAW_SCANS_SPENT, "what to do about it", reset_at=RESET_AT),
    Code.UNAUTHORIZED: problems.unauthorized(),
}


def rendered(envelope, code):
    reply = ENVELOPES[envelope](EXAMPLES.get(code) or Problem(code, "what to do about it"))
    seen = {"status": int(reply.status), "headers": dict(reply.headers), "body": json.loads(reply.body)}
    return json.dumps(seen, indent=2, sort_keys=True) + "\n"


@pytest.mark.parametrize("code", Code)
@pytest.mark.parametrize("envelope", ENVELOPES)
def test_an_error_looks_as_it_always_did(envelope, code):
    assert rendered(envelope, code) == (FOLDER / f"{envelope}-{code}.json").read_text()


def test_every_code_has_a_status():
    assert set(STATUS_OF) == set(Code)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for each_envelope in ENVELOPES:
        for each_code in Code:
            (FOLDER / f"{each_envelope}-{each_code}.json").write_text(rendered(each_envelope, each_code))
