"""Every rejection is counted under a code of a closed set, with a text for the owner."""

import pytest

from mauve.core.rejections import RejectionCode
from mauve.dashboard.pages.ingest_health import reason_text


@pytest.mark.parametrize("code", RejectionCode)
def test_every_code_has_its_own_text(code):
    assert "earlier version" not in reason_text(code)
    assert len({reason_text(each) for each in RejectionCode}) == len(RejectionCode)


@pytest.mark.parametrize("word", ["a", "an", "the", "no", "each", "conflicting", "props.amount", ""])
def test_a_word_of_an_earlier_version_is_shown_as_one(word):
    assert reason_text(word) == f"recorded by an earlier version as “{word}”"
