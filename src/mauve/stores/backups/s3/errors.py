"""Say what to do about an error of the object store."""

from typing import Final

from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
)

_DENIED: Final = frozenset({"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "403"})
_REPLACED: Final = frozenset({"PreconditionFailed", "412"})
_CREDENTIALS: Final = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or MAUVE_BACKUP_ACCESS_KEY_ID and MAUVE_BACKUP_SECRET_ACCESS_KEY"
)


def explain(error: Exception, bucket: str) -> str:
    """Return one sentence with the reason and the remedy. It names no credential."""
    if isinstance(error, ClientError):
        return _explain_refusal(str(error.response.get("Error", {}).get("Code", "unknown")), bucket)
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return f"there are no credentials for the bucket {bucket}: {_CREDENTIALS}"
    if isinstance(error, NoRegionError):
        return f"the region of the bucket {bucket} is not known: set AWS_REGION or MAUVE_BACKUP_REGION"
    if isinstance(error, EndpointConnectionError | ConnectTimeoutError):
        return f"the store of the bucket {bucket} does not answer: check the network and MAUVE_BACKUP_ENDPOINT"
    return f"the connection to the bucket {bucket} failed ({error}): try again"


def _explain_refusal(code: str, bucket: str) -> str:
    if code == "NoSuchBucket":
        return f"there is no bucket {bucket}: create it, or check its name and MAUVE_BACKUP_ENDPOINT"
    if code in _DENIED:
        return f"the bucket {bucket} refuses these credentials ({code}): let them list, read, write and delete objects"
    if code in _REPLACED:
        return "the backup was replaced while it was read: try again"
    return f"the store of the bucket {bucket} failed ({code}): try again later, and check its status"
