"""The ways in which an engine says that it cannot answer."""


class StoreUnavailableError(Exception):
    """The engine could not be reached, timed out or failed; nothing of the call was applied."""


class NewerSchemaError(Exception):
    """The tables were made by a newer release than this one."""
