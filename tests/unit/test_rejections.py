"""Every rejection is counted under a code of a closed set, with a text for the owner."""

import pytest

from mauve.core.problems import RejectionCode
from mauve.dashboard.pages.ingest_health import REASONS, warnings_from
from mauve.ingest.hints import TIME_NAMES
from mauve.stores.ingest_stats import TIME_MISNAMED, IngestCount


def test_every_code_has_its_own_text():
    assert REASONS.keys() == set(RejectionCode)
    assert len(set(REASONS.values())) == len(RejectionCode)


@pytest.mark.parametrize("name", TIME_NAMES)
def test_a_time_under_a_wrong_name_is_shown_with_the_right_one(name):
    (warning,) = warnings_from([IngestCount(f"{TIME_MISNAMED}:{name}", 3, 5)])
    assert (warning.title, warning.count) == (f"{name} is not a field: did you mean at?", 3)
