"""The state of a rule: whether it is true, since when, and when it last sent something."""

from typing import Final

import msgspec

from mauve.alerts.schedule import HOUR_MS


class RuleState(msgspec.Struct, frozen=True):
    true_since: int | None = None  # None: it is not true
    sent_at: int | None = None  # kept when it ends, so that one that comes and goes does not send each time
    is_unknown: bool = False  # the numbers could not be read when it was last judged
    value: str = ""  # what the last judgment found, for the page


_decoder: Final = msgspec.json.Decoder(RuleState)


def packed_state(state: RuleState) -> str:
    return msgspec.json.encode(state).decode()


def state_from(text: str) -> RuleState:
    return _decoder.decode(text)


def after_unknown(state: RuleState) -> RuleState:
    """Return the state after a judgment without numbers: nothing begins and nothing ends."""
    return msgspec.structs.replace(state, is_unknown=True)


def after_judgment(state: RuleState, now_ms: int, value: str, *, is_true: bool) -> RuleState:
    """Return the state after a judgment, before anything is sent."""
    since = (now_ms if state.true_since is None else state.true_since) if is_true else None
    return RuleState(since, state.sent_at, is_unknown=False, value=value)


def should_send(state: RuleState, now_ms: int, cooldown_h: int, *, is_quiet: bool) -> bool:
    """Return whether to send now: the rule is true, it is not a quiet hour, and the cooldown is over."""
    if state.true_since is None or is_quiet:
        return False
    # A last time in the future means that the clock was set back.
    return state.sent_at is None or not 0 <= now_ms - state.sent_at < cooldown_h * HOUR_MS


def after_sending(state: RuleState, now_ms: int) -> RuleState:
    return msgspec.structs.replace(state, sent_at=now_ms)
