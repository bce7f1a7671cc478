"""The seams between the rules and what keeps things: one `Protocol` each, one folder per engine."""


class StoreUnavailableError(Exception):
    """The engine could not be reached, timed out or failed; nothing of the call was applied."""


class NewerSchemaError(Exception):
    """The tables were made by a newer release than this one."""
