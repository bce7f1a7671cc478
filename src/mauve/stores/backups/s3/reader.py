"""Read an object in ranges, each of which is asked for again if the connection is cut."""

import io
import time
from http import HTTPStatus
from typing import Any, Final

from botocore.exceptions import ConnectionError as S3ConnectionError
from botocore.exceptions import HTTPClientError, IncompleteReadError

from mauve.stores.backups import BackupStoreError

READ_BYTES: Final = 8 * 2**20
_TRIES: Final = 5
_WAIT_S: Final = 0.5


class ObjectReader(io.RawIOBase):
    """The content of an object as it is now; one that is replaced while it is read is an error."""

    def __init__(self, client: Any, bucket: str, key: str) -> None:  # noqa: ANN401 - boto3 has no types
        self._client = client
        self._at = {"Bucket": bucket, "Key": key}
        found = client.head_object(**self._at)
        self._size: int = found["ContentLength"]
        self._etag: str = found["ETag"]
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - whatever takes bytes
        wanted = min(len(buffer), READ_BYTES, self._size - self._position)
        if wanted <= 0:
            return 0
        content = self._fetch(self._position, wanted)
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)

    def _fetch(self, start: int, count: int) -> bytes:
        for attempt in range(1, _TRIES + 1):
            reply = self._client.get_object(**self._at, Range=f"bytes={start}-{start + count - 1}", IfMatch=self._etag)
            self._check_range(reply, count)
            try:
                content = _read_all(reply["Body"], count)
            except (IncompleteReadError, HTTPClientError, S3ConnectionError):
                if attempt == _TRIES:
                    raise
                time.sleep(_WAIT_S * 2**attempt)
            else:
                return content
        raise AssertionError("unreachable")

    def _check_range(self, reply: dict[str, Any], count: int) -> None:
        """Refuse a reply to another range, such as the whole object, before it is read into memory."""
        is_partial = reply["ResponseMetadata"]["HTTPStatusCode"] == HTTPStatus.PARTIAL_CONTENT
        if reply["ContentLength"] != count or not (is_partial or count == self._size):
            reply["Body"].close()
            raise BackupStoreError(
                "the store ignores which part of an object is asked for: download the object, then restore that file"
            )


def _read_all(body: Any, count: int) -> bytes:  # noqa: ANN401 - boto3 has no types
    content: bytes = body.read(count + 1)
    if len(content) != count:
        raise IncompleteReadError(actual_bytes=len(content), expected_bytes=count)
    return content
