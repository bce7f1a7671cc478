import pytest

from mauve.core.subscriptions import likely_status


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Active", "active"),
        (" active\n", "active"),
        ("CANCELLED", "canceled"),
        ("cancelled", "canceled"),
        ("Past_Due", "past_due"),
        ("active", None),
        ("past_due", None),
        ("gold", None),
        ("", None),
    ],
)
def test_a_status_in_another_spelling_is_recognized(text, meant):
    assert likely_status(text) == meant
