"""Why an item of a batch is rejected: a code from a closed set, for counting, and a sentence for the sender."""

from enum import StrEnum
from typing import NamedTuple


class RejectionCode(StrEnum):
    # A field is missing or invalid.
    NAME = "name"
    USER = "user"
    ID = "id"
    AT = "at"
    SENT_AT = "sent_at"
    PROPS = "props"
    PROPS_VALUE = "props_value"
    AMOUNT = "amount"
    CURRENCY = "currency"
    EARNED = "earned"
    TYPE = "type"
    STATUS = "status"
    MRR = "mrr"
    # The item as a whole.
    NOT_AN_OBJECT = "not_an_object"
    NUMBER_OUT_OF_RANGE = "number_out_of_range"
    LONE_SURROGATE = "lone_surrogate"
    REPEATED_KEY = "repeated_key"
    TOO_DEEP = "too_deep"
    TOO_LARGE = "too_large"
    # Valid in itself, but not from this sender or not now.
    SERVER_KEY_REQUIRED = "server_key_required"
    CONFLICT = "conflict"


class Fault(NamedTuple):
    """What is wrong with an item."""

    code: RejectionCode
    text: str  # names the field and never echoes a value
