"""The version, equal to that of the service."""

VERSION = "0.1.0"
USER_AGENT = f"mauve-metrics-python/{VERSION}"
