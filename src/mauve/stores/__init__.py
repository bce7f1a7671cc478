"""The seams between the rules and the stores: one `Protocol` each, one folder per engine."""


class StoreUnavailableError(Exception):
    """The engine is unreachable, timed out or failed; no part of the call was applied."""


class UnconfirmedError(StoreUnavailableError):
    """The engine did not answer a commit, which it may have applied."""


class NewerSchemaError(Exception):
    """The tables were created by a newer release."""


class UnsupportedServerError(Exception):
    """A server that this release cannot use safely. The message says what to change."""


class ForeignDataError(Exception):
    """A server or data directory belongs to another installation. The message says what to do."""
