"""How a user was seen, which decides in which distinct counts they are."""

from enum import StrEnum


class Activity(StrEnum):
    """By a behavioural event, or by signing up."""

    ACTIVE = "active"
    SIGNUP = "signup"
