"""The one way in which an engine says that it cannot answer now."""


class StoreUnavailableError(Exception):
    """The engine could not be reached, timed out or failed; nothing of the call was applied."""
