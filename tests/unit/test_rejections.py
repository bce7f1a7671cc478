"""Every rejection is counted under a code of a closed set, with a text for the owner."""

import pytest

from mauve.core.problems import RejectionCode
from mauve.dashboard.pages.ingest_health import reason_text, warnings_from
from mauve.ingest.hints import TIME_NAMES
from mauve.stores.ingest_stats import TIME_MISNAMED, IngestCount


@pytest.mark.parametrize("code", RejectionCode)
def test_every_code_has_its_own_text(code):
    assert "earlier version" not in reason_text(code)
    assert len({reason_text(each) for each in RejectionCode}) == len(RejectionCode)


@pytest.mark.parametrize("word", ["a", "an", "the", "no", "each", "conflicting", "props.amount", ""])
def test_a_word_of_an_earlier_version_is_shown_as_one(word):
    assert reason_text(word) == f"recorded by an earlier version as “{word}”"


@pytest.mark.parametrize("name", TIME_NAMES)
def test_a_time_under_a_wrong_name_is_shown_with_the_right_one(name):
    (warning,) = warnings_from([IngestCount(f"{TIME_MISNAMED}:{name}", 3, 5)])
    assert (warning.title, warning.count) == (f"{name} is not a field: did you mean at?", 3)
