"""Warnings about a delivery, beside its result. `docs/billing.md` explains every one."""

from enum import StrEnum


class DeliveryWarning(StrEnum):
    # It makes no row.
    PLANE_MISMATCH = "plane_mismatch"
    THIN_EVENT = "thin_event"
    ZERO_AMOUNT = "zero_amount"
    # It makes a row that the owner should check.
    FEE_UNKNOWN = "fee_unknown"
    # A price adds nothing, or more than it should.
    METERED = "metered"
    NO_AMOUNT = "no_amount"
    ONE_TIME = "one_time"
    OTHER_CURRENCY = "other_currency"
    TAX_INCLUSIVE = "tax_inclusive"
    TIERED = "tiered"
    UNKNOWN_INTERVAL = "unknown_interval"
    ITEMS_INCOMPLETE = "items_incomplete"
    NO_ITEMS = "no_items"
    # It cannot be booked.
    AMOUNT_UNUSABLE = "amount_unusable"
    CURRENCY_UNUSABLE = "currency_unusable"
    ID_UNUSABLE = "id_unusable"
    INTERVAL_UNUSABLE = "interval_unusable"
    ITEMS_TOO_MANY = "items_too_many"
    NOT_AN_EVENT = "not_an_event"
    NOT_READ = "not_read"
    OBJECT_UNUSABLE = "object_unusable"
    QUANTITY_UNUSABLE = "quantity_unusable"
    STATUS_UNUSABLE = "status_unusable"
