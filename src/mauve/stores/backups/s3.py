"""Backups as objects of a bucket of Amazon S3, or of any store with the same interface.

They are written by multipart upload: an object appears when its upload is completed.
"""

import base64
import hashlib
import io
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import IO, Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as S3ConnectionError

from mauve.core.secret import Secret
from mauve.stores.backups import NAME_PREFIX, BackupStoreError, StoredBackup, Writable

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

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any buffer
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


PART_BYTES_MIN: Final = 16 * 2**20
_PARTS: Final = 9_000  # An upload may have 10,000, and an estimate of the size may be low.
_CONNECT_S_MAX: Final = 10.0
_READ_S_MAX: Final = 60.0
_ATTEMPTS: Final = 6  # in about half a minute
PAGES_MAX: Final = 100  # of 1,000 names each


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket and how to reach it. Fields that are None have the defaults of the AWS tools."""

    name: str
    prefix: str  # empty, or with a slash at its end
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: Secret | None = None


class S3BackupStore:
    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket.name
        self._prefix = bucket.prefix
        secret = bucket.secret_access_key
        with self._explained():
            self._client = boto3.client(
                "s3",
                endpoint_url=bucket.endpoint,
                region_name=bucket.region,
                aws_access_key_id=bucket.access_key_id,
                aws_secret_access_key=None if secret is None else secret.reveal(),
                config=Config(
                    connect_timeout=_CONNECT_S_MAX,
                    read_timeout=_READ_S_MAX,
                    retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
                    # Every store knows Content-MD5, which parts carry; many do not know the newer checksums.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                    s3={"addressing_style": "auto" if bucket.endpoint is None else "path"},
                ),
            )

    def __str__(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}"

    @contextmanager
    def writing(self, name: str, bytes_expected: int) -> Iterator[Writable]:
        at = {"Bucket": self._bucket, "Key": self._prefix + name}
        with self._explained():
            upload_id = self._client.create_multipart_upload(**at)["UploadId"]
        upload = _Upload(self._client, {**at, "UploadId": upload_id}, max(PART_BYTES_MIN, bytes_expected // _PARTS))
        try:
            with self._explained():
                yield upload
                upload.complete()
        except BaseException:
            with suppress(BotoCoreError, ClientError):  # Otherwise a later sweep removes it.
                self._client.abort_multipart_upload(**at, UploadId=upload_id)
            raise

    @contextmanager
    def reading(self, name: str) -> Iterator[IO[bytes]]:
        with self._explained():
            try:
                reader = ObjectReader(self._client, self._bucket, self._prefix + name)
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:  # noqa: PLR2004 - HEAD has no code
                    raise FileNotFoundError(name) from None
                raise
            with io.BufferedReader(reader, READ_BYTES) as file:
                yield file

    def list(self) -> list[StoredBackup]:
        found: list[StoredBackup] = []
        with self._explained():
            listing = self._client.get_paginator("list_objects_v2")
            pages = listing.paginate(Bucket=self._bucket, Prefix=self._prefix, Delimiter="/")
            for number, page in enumerate(pages, 1):
                if number > PAGES_MAX:
                    raise BackupStoreError(f"{self} holds too many objects to list: use a prefix of its own")
                named = [(each["Key"].removeprefix(self._prefix), each["Size"]) for each in page.get("Contents", ())]
                found += [StoredBackup(name, size) for name, size in named if "/" not in name]
        return sorted(found, key=lambda each: each.name)

    def delete(self, name: str) -> None:
        with self._explained():
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def sweep(self, before_ms: int) -> int:
        """Abort abandoned uploads: they are invisible, but take space."""
        uploads = self._client.get_paginator("list_multipart_uploads")
        swept = 0
        with self._explained():
            pages = uploads.paginate(Bucket=self._bucket, Prefix=self._prefix + NAME_PREFIX, Delimiter="/")
            for page in islice(pages, PAGES_MAX):
                for each in page.get("Uploads", ()):
                    is_ours = "/" not in each["Key"].removeprefix(self._prefix)
                    if is_ours and each["Initiated"].timestamp() * 1000 < before_ms:
                        self._client.abort_multipart_upload(
                            Bucket=self._bucket, Key=each["Key"], UploadId=each["UploadId"]
                        )
                        swept += 1
        return swept

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise BackupStoreError(explain(error, self._bucket)) from error


class _Upload:
    """Sends parts as they fill, one at a time. The server checks the MD5 of each."""

    def __init__(self, client: Any, at: dict[str, str], part_bytes: int) -> None:  # noqa: ANN401 - boto3 has no types
        self._client = client
        self._at = at
        self._part_bytes = part_bytes
        self._buffer = bytearray()
        self._parts: list[dict[str, Any]] = []
        self._failed = False

    def write(self, content: bytes, /) -> int:
        self._buffer += content
        while len(self._buffer) >= self._part_bytes:
            self._send(bytes(self._buffer[: self._part_bytes]))
            del self._buffer[: self._part_bytes]
        return len(content)

    def complete(self) -> None:
        if self._buffer or not self._parts:
            self._send(bytes(self._buffer))
        self._client.complete_multipart_upload(**self._at, MultipartUpload={"Parts": self._parts})

    def _send(self, part: bytes) -> None:
        if self._failed:  # Writers that end their frames after an error must not begin to retry again.
            raise BackupStoreError("the upload has failed: try again")
        number = len(self._parts) + 1
        md5 = base64.b64encode(hashlib.md5(part, usedforsecurity=False).digest()).decode()
        self._failed = True
        reply = self._client.upload_part(**self._at, PartNumber=number, Body=part, ContentMD5=md5)
        self._failed = False
        self._parts.append({"PartNumber": number, "ETag": reply["ETag"]})
