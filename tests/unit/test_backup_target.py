"""What arrives in a store, and what comes back from it, is checked."""

import io
from contextlib import contextmanager

import pytest

from mauve.maintenance.stored_backups import BackupTarget
from mauve.stores.backups import BackupStoreError
from mauve.stores.backups.disk import FolderBackupStore
from mauve.stores.backups.s3 import ObjectReader

NAME = "mauve-20261116T020000000Z.mauve"


class LossyStore(FolderBackupStore):
    """Loses the last byte, without an error."""

    def __init__(self, folder):
        super().__init__(folder)
        self._place = folder

    @contextmanager
    def writing(self, name, bytes_expected):
        with super().writing(name, bytes_expected) as file:
            yield file
        (self._place / name).write_bytes((self._place / name).read_bytes()[:-1])


def test_a_backup_that_arrived_in_part_is_removed_and_an_error(tmp_path):
    target = BackupTarget(LossyStore(tmp_path), f"{tmp_path}/{NAME}", tmp_path, folder=tmp_path, keys=None)
    with pytest.raises(BackupStoreError, match="held 4 of 5 bytes"), target.writing(5) as file:
        file.write(b"12345")
    assert list(tmp_path.iterdir()) == [], "it is not the newest backup"


class Body(io.BytesIO):
    bytes_read = 0

    def read(self, count=-1):
        content = super().read(count)
        self.bytes_read += len(content)
        return content


class RangelessClient:
    """A store that ignores which part is asked for."""

    def __init__(self, status, content, said_bytes):
        self.status, self.body, self._said_bytes = status, Body(content), said_bytes

    def head_object(self, **_at):
        return {"ContentLength": 100, "ETag": "x"}

    def get_object(self, **_asked):
        reply = {"ResponseMetadata": {"HTTPStatusCode": self.status}, "Body": self.body}
        return reply | {"ContentLength": self._said_bytes}


@pytest.mark.parametrize(("status", "said_bytes"), [(200, 100), (206, 100), (200, 10)])
def test_a_store_that_ignores_ranges_is_refused_before_its_reply_is_read(status, said_bytes):
    client = RangelessClient(status, bytes(100), said_bytes)
    with pytest.raises(BackupStoreError, match="download the object"):
        ObjectReader(client, "bucket", NAME).read(10)
    assert client.body.bytes_read == 0


def test_a_whole_small_object_may_come_as_such():
    assert ObjectReader(RangelessClient(200, b"x" * 100, 100), "bucket", NAME).read(200) == b"x" * 100
