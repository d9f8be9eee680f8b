"""Hostile and damaged archives leave nothing behind, and write nowhere else."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import tarfile
import zipfile

import pytest

from utils.data.fetch import unpacking
from utils.data.fetch.unpacking import unpack
from utils.errors import UserError


def tarred(*entries, mode="w"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, format=tarfile.PAX_FORMAT) as archive:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, "/etc/passwd", len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def zipped(*entries):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, mode, content in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr, entry.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return buffer.getvalue()


def refused(tmp_path, name, content, message):
    archive, folder = tmp_path / name, tmp_path / "outer" / "inner"
    archive.write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        unpack(archive, folder)
    assert str(archive) in str(caught.value) and len(str(caught.value)) < 600
    assert list(folder.iterdir()) == []
    assert [path.name for path in folder.parent.iterdir()] == ["inner"]


BAD_NAMES = ("/etc/x", "../x", "a/../../x", "a//b", "a\\b", "C:/x", "a/..", "/".join("a" * 40))


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_leads_elsewhere_is_refused(tmp_path, name):
    good = ("good.txt", tarfile.REGTYPE, b"good")
    message = "leads out of the folder"
    refused(tmp_path, "a.tar", tarred(good, (name, tarfile.REGTYPE, b"bad")), message)
    if name != "a\\b":  # zipfile itself takes it for a folder, on some systems
        refused(tmp_path, "a.zip", zipped(("good.txt", 0, b"good"), (name, 0, b"bad")), message)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE]
)
def test_what_is_no_plain_file_of_a_tar_is_refused(tmp_path, kind):
    refused(tmp_path, "a.tar", tarred(("a", kind, b"")), "'a' is a link or a device")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_what_is_no_plain_file_of_a_zip_is_refused(tmp_path, kind):
    content = zipped(("a", kind | 0o777, b"/etc/passwd"))
    refused(tmp_path, "a.zip", content, "'a' is a link or a device")


def test_a_name_twice_is_refused(tmp_path):
    twice = [("a", tarfile.REGTYPE, b"1"), ("a", tarfile.REGTYPE, b"2")]
    refused(tmp_path, "a.tar", tarred(*twice), "'a' is there twice")
    with pytest.warns(UserWarning, match="Duplicate name"):
        content = zipped(("a", 0, b"1"), ("a", 0, b"2"))
    refused(tmp_path, "a.zip", content, "'a' is there twice")


def test_a_bomb_is_refused_before_it_fills_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "_SMALL_BYTES", 1 << 16)
    zeros = bytes(1 << 24)
    message = "expands to over 100 times its size"
    refused(tmp_path, "a.zip", zipped(("a", 0, zeros)), message)
    refused(tmp_path, "a.tgz", tarred(("a", tarfile.REGTYPE, zeros), mode="w:gz"), message)
    # Of the size that it declares nothing is seen: all is behind a header of gigabytes.
    header = tarfile.TarInfo("a")
    header.type, header.size = tarfile.XHDTYPE, 1 << 33
    refused(tmp_path, "b.tar", header.tobuf(tarfile.GNU_FORMAT) + bytes(1024), "a header of")
    refused(tmp_path, "b.tgz", gzip.compress(header.tobuf(tarfile.GNU_FORMAT)), "a header of")


def test_too_many_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "MAX_FILES", 3)
    refused(tmp_path, "a.zip", zipped(*((str(n), 0, b"") for n in range(4))), "more than 3 members")
    unpack_good(tmp_path, zipped(*((str(n), 0, b"") for n in range(3))), 3)


def unpack_good(tmp_path, content, num_files):
    path = tmp_path / "good.zip"
    path.write_bytes(content)
    assert unpack(path, tmp_path / "good").num_files == num_files


def test_a_zip_that_lies_of_its_sizes_is_refused(tmp_path):
    content = bytearray(zipped(("a", 0, b"x" * 1000)))
    directory = content.rindex(b"PK\x01\x02")
    for size in (10, 5000):
        content[directory + 24 : directory + 28] = struct.pack("<I", size)
        refused(tmp_path, "a.zip", bytes(content), "damaged archive|not the size")


def test_an_encrypted_member_is_refused(tmp_path):
    content = bytearray(zipped(("a", 0, b"x")))
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    refused(tmp_path, "a.zip", bytes(content), "'a' is encrypted")


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tgz"])
@pytest.mark.parametrize(
    "content", [b"", b"no archive at all", bytes(2000), b"PK\x05\x06", b"\x1f\x8b"]
)
def test_what_is_no_archive_is_an_error(tmp_path, name, content):
    if (name, content[:1]) == ("a.tar", b"\0"):
        return  # blocks of zeros end a tar: it is an empty one
    refused(tmp_path, name, content, "a damaged archive|cannot be unpacked")


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tgz"])
def test_a_cut_archive_leaves_nothing(tmp_path, name):
    data = os.urandom(30_000)
    entries = [(str(number), tarfile.REGTYPE, data) for number in range(3)]
    whole = {
        "a.zip": zipped(*((number, 0, content) for number, _, content in entries)),
        "a.tar": tarred(*entries),
        "a.tgz": tarred(*entries, mode="w:gz"),
    }[name]
    refused(tmp_path, name, whole[: len(whole) // 2], "damaged archive|cannot|not the size")


def test_a_link_in_the_way_is_not_followed(tmp_path):
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / ".a.zip.unpacking").symlink_to(elsewhere)
    (tmp_path / "a.zip").write_bytes(zipped(("a", 0, b"1")))
    with pytest.raises(UserError, match="a link, where files are to be unpacked"):
        unpack(tmp_path / "a.zip", folder)
    assert list(elsewhere.iterdir()) == []


def test_a_file_of_another_content_stays(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_bytes(b"mine")
    (tmp_path / "a.zip").write_bytes(zipped(("a", 0, b"theirs"), ("b", 0, b"")))
    with pytest.raises(UserError, match="a is there already, with another content; move it away"):
        unpack(tmp_path / "a.zip", folder)
    assert (folder / "a").read_bytes() == b"mine"


def test_names_of_any_language_are_kept(tmp_path):
    names = ["café.jpg", "图片 1.jpg", "🐈/🐕.jpg"]
    unpack_good(tmp_path, zipped(*((name, 0, b"") for name in names)), 3)
    folder = tmp_path / "good"
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.jpg")} == set(names)
