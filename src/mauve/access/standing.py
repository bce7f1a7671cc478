"""Check whether an organization may ingest now."""

from mauve.core.organization import Standing, standing_at
from mauve.core.problems import Code, Problem
from mauve.core.window import period_ends_at
from mauve.stores.published import PublishedOrganization


def check_standing(organization: PublishedOrganization | None, now_ms: int) -> None:
    """Raise if the organization is suspended."""
    if organization is None:
        return
    if standing_at(organization.standing, organization.grace_ends_at, now_ms) is Standing.SUSPENDED:
        raise Problem(
            Code.INGEST_SUSPENDED,
            "ingest is suspended: settle the open invoice or restart the subscription, then send again",
        )


def check_cap(cap: int, events: int, now_ms: int) -> None:
    """Raise if the events of this billing period have reached the cap."""
    if events >= cap:
        raise Problem(
            Code.EVENT_CAP_REACHED,
            "the event cap of this billing period is reached: raise the cap, or wait until it resets",
            cap_events=cap,
            resets_at=period_ends_at(now_ms),
        )
