"""Which status a misspelled one is taken for."""

import pytest

from mauve.core.subscriptions import likely_status


@pytest.mark.parametrize(
    ("status", "likely"),
    [
        ("Active", "active"),
        ("ACTIVE ", "active"),
        (" active\n", "active"),
        ("active.", "active"),
        ('"active"', "active"),
        ("\N{ZERO WIDTH SPACE}active", "active"),
        ("\N{FULLWIDTH LATIN SMALL LETTER A}ctive", "active"),
        ("cancelled", "canceled"),
        ("Cancelled", "canceled"),
        ("pastdue", "past_due"),
        ("Past Due", "past_due"),
        ("past-due", "past_due"),
        ("Trialling", "trialing"),
        ("incomplete expired", "incomplete_expired"),
    ],
)
def test_case_spaces_and_spelling_are_forgiven(status, likely):
    assert likely_status(status) == likely


@pytest.mark.parametrize("status", ["active", "past_due", "canceled", "trialing", "paused"])
def test_a_known_status_needs_no_correction(status):
    assert likely_status(status) is None


@pytest.mark.parametrize("status", ["", " ", "inactive", "not active", "vip", "activeactive", "a" * 10**6])
def test_another_word_is_not_corrected(status):
    assert likely_status(status) is None
