"""What every place for backups promises."""

import pytest

from mauve.core.secret import Secret
from mauve.stores.backups import StoredBackup
from mauve.stores.backups.disk import FolderBackupStore
from mauve.stores.backups.s3 import Bucket, S3BackupStore
from support.s3 import BUCKET, CREDENTIALS, S3Server

pytestmark = pytest.mark.embedded
FIRST, SECOND = "mauve-20261115T020000000Z.mauve", "mauve-20261116T020000000Z.mauve"
FOREVER_MS = 2**42


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with S3Server(tmp_path_factory.mktemp("s3") / "server") as started:
        yield started


@pytest.fixture(params=["folder", "bucket"])
def store(request, tmp_path):
    if request.param == "folder":
        return FolderBackupStore(tmp_path)
    port = request.getfixturevalue("server").port
    key, secret, region = CREDENTIALS.values()
    prefix = f"{request.node.name.partition('[')[0]}/"
    return S3BackupStore(Bucket(BUCKET, prefix, f"http://127.0.0.1:{port}", region, key, Secret(secret)))


def write(store, name, content):
    with store.writing(name, len(content)) as file:
        file.write(content)


def test_a_backup_appears_when_its_block_ends(store):
    with store.writing(FIRST, 0) as file:
        file.write(b"one, ")
        assert store.list() == []
        file.write(b"two")
    assert store.list() == [StoredBackup(FIRST, 8)]
    with store.reading(FIRST) as file:
        assert file.read() == b"one, two"


def test_a_block_that_raises_leaves_nothing(store):
    def write_half():
        with store.writing(FIRST, 0) as file:
            file.write(b"content")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write_half()
    assert store.list() == []
    assert store.sweep(FOREVER_MS) == 0, "nothing is left to be swept"


def test_backups_are_listed_by_name_and_deleted_one_by_one(store):
    write(store, SECOND, b"second")
    write(store, FIRST, b"first")
    assert store.list() == [StoredBackup(FIRST, 5), StoredBackup(SECOND, 6)]
    store.delete(FIRST)
    assert store.list() == [StoredBackup(SECOND, 6)]


def test_an_empty_backup_is_one(store):
    write(store, FIRST, b"")
    assert store.list() == [StoredBackup(FIRST, 0)]
    with store.reading(FIRST) as file:
        assert file.read() == b""


def test_a_reader_can_seek(store):
    write(store, FIRST, b"0123456789")
    with store.reading(FIRST) as file:
        assert file.seekable()
        assert file.seek(-3, 2) == 7
        assert file.read() == b"789"
        file.seek(0)
        assert file.read(4) == b"0123"


def test_a_missing_one_is_not_found(store):
    with pytest.raises(FileNotFoundError), store.reading(FIRST):
        pass


def test_only_old_drafts_in_a_directory_are_swept(tmp_path):
    store = FolderBackupStore(tmp_path)
    for name in (f".{FIRST}.part", ".others.part", f"{FIRST}.part"):
        (tmp_path / name).touch()
    assert store.sweep(0) == 0
    assert store.sweep(FOREVER_MS) == 1
    assert {path.name for path in tmp_path.iterdir()} == {".others.part", f"{FIRST}.part"}
