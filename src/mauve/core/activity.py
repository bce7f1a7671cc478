"""How a user was seen, which decides in which distinct counts they are."""

from enum import StrEnum


class Seen(StrEnum):
    """By a behavioural event, or by signing up."""

    ACTIVE = "active"
    SIGNUP = "signup"
