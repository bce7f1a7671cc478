import pytest

from mauve.core.organization import Limits, Organization, Standing


@pytest.mark.parametrize(
    ("standing", "grace_ends_at", "now", "expected"),
    [
        (Standing.LIVE, None, 0, Standing.LIVE),
        (Standing.SUSPENDED, None, 0, Standing.SUSPENDED),
        (Standing.LIVE, 100, 99, Standing.LIVE),
        (Standing.LIVE, 100, 100, Standing.SUSPENDED),
        (Standing.SUSPENDED, 100, 99, Standing.SUSPENDED),
    ],
)
def test_expired_grace_suspends(standing, grace_ends_at, now, expected):
    organization = Organization("org_1", "Acme", standing, grace_ends_at, Limits(), 0)
    assert organization.standing_at(now) is expected
