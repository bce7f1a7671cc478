"""The backup file: what goes in comes out, and nothing else is accepted."""

import io
import os
import tarfile

import msgspec
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mauve.maintenance import archive
from mauve.maintenance.archive import FORMAT, Header, Member, read_header, unpack_archive, write_archive
from mauve.maintenance.errors import MaintenanceRefusedError

HEADER = Header(format=FORMAT, mauve="1.2.3", created_at=5, bytes=6, events=7, has_master_key=True)
CONTENTS = {"catalog.db": os.urandom(5_000), "log/000/x.segment": b"", "frozen/events/all/data.bin": bytes(3_000_000)}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "backup"


@pytest.fixture
def target(tmp_path):
    return tmp_path / "target"


def pack(tmp_path, file, contents=CONTENTS, header=HEADER):
    members = []
    for place, (name, content) in enumerate(contents.items()):
        path = tmp_path / f"member {place}"
        path.write_bytes(content)
        members.append(Member(name, path))
    reported = []
    with file.open("wb") as out:
        write_archive(out, header, members, reported.append)
    return sum(reported)


def unpacked(target):
    return {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def test_what_goes_in_comes_out(tmp_path, file, target):
    packed = pack(tmp_path, file)
    assert packed == sum(map(len, CONTENTS.values()))
    assert read_header(file) == HEADER
    again = []
    unpack_archive(file, target, again.append)
    assert unpacked(target) == CONTENTS
    assert sum(again) == packed
    assert {oct(path.stat().st_mode)[-3:] for path in target.rglob("*") if path.is_file()} == {"600"}


def test_standard_tools_can_list_it(tmp_path, file):
    pack(tmp_path, file)
    content = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(file.read_bytes())).read()
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        assert tar.getnames() == ["mauve-backup.json", *CONTENTS, "members.json"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(tmp_path_factory, share):
    folder = tmp_path_factory.mktemp("cut")
    file = folder / "backup"
    pack(folder, file)
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
    with pytest.raises(MaintenanceRefusedError, match="not a whole backup"):
        unpack_archive(file, folder / "target", int)
    with pytest.raises(MaintenanceRefusedError, match="not a whole backup"):
        read_header(file)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_never_changes_what_comes_out(tmp_path_factory, share, bit):
    folder = tmp_path_factory.mktemp("flipped")
    file = folder / "backup"
    pack(folder, file)
    content = bytearray(file.read_bytes())
    content[int(len(content) * share)] ^= 1 << bit
    file.write_bytes(content)
    try:
        unpack_archive(file, folder / "target", int)
    except MaintenanceRefusedError:
        return
    assert unpacked(folder / "target") == CONTENTS, "an unused bit"


def test_a_newer_format_is_refused_with_its_version(tmp_path, file, target):
    class LaterHeader(msgspec.Struct):
        format: int = FORMAT + 1
        mauve: str = "9.9"
        shape: str = "quite another"

    pack(tmp_path, file, header=LaterHeader())
    with pytest.raises(MaintenanceRefusedError, match=r"made by mauve 9\.9, which is newer"):
        unpack_archive(file, target, int)
    assert not target.exists()


@pytest.mark.parametrize("name", ["../outside", "/outside", "a/../../outside"])
def test_a_member_outside_the_directory_is_refused(tmp_path, file, target, name):
    pack(tmp_path, file, {name: b"x"})
    with pytest.raises(MaintenanceRefusedError, match="is outside"):
        unpack_archive(file, target, int)
    assert not (tmp_path / "outside").exists()


def test_an_archive_without_a_member_list_is_refused(tmp_path, file, target, monkeypatch):
    monkeypatch.setattr(archive, "LIST", "other.json")
    pack(tmp_path, file)
    monkeypatch.undo()
    with pytest.raises(MaintenanceRefusedError, match="no list"):
        unpack_archive(file, target, int)
