"""Hostile and damaged archives leave nothing behind, and write nowhere else."""

import gzip
import os
import tarfile
import zipfile

import pytest

from tests.unit.data.fetch.conftest import files_in, tarred, zipped
from utils.data.fetch.download import unpack
from utils.errors import UserError

FILES = {"VOC/a/1.jpg": b"one", "图片 1.jpg": b"two" * 1000}
NOISE = {str(number): os.urandom(30_000) for number in range(3)}
ZEROS = {"a": bytes(1 << 25)}
LONG_HEADER = tarfile.TarInfo("a")
LONG_HEADER.type, LONG_HEADER.size = tarfile.XHDTYPE, 1 << 33


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.zip", zipped(FILES)),
        ("a.tar", tarred(FILES)),
        ("a.tgz", tarred(FILES, "w:gz")),
        ("a.tar.gz", tarred({f"./{name}": content for name, content in FILES.items()}, "w:gz")),
    ],
)
def test_an_archive_is_unpacked_beside_what_is_there(tmp_path, name, content):
    (tmp_path / "VOC").mkdir()
    (tmp_path / "VOC/mine").write_bytes(b"mine")
    (tmp_path / "图片 1.jpg").write_bytes(FILES["图片 1.jpg"])
    (tmp_path / name).write_bytes(content)
    assert unpack(tmp_path / name, name, tmp_path) == 2
    assert files_in(tmp_path) == FILES | {"VOC/mine": b"mine", name: content}


HOSTILE = {
    "a name above": ("a.tar", tarred({"good": b"", "../x": b""}), "lead elsewhere"),
    "a name above in the middle": ("a.tar", tarred({"a/../../x": b""}), "lead elsewhere"),
    **{
        f"kind {kind!r}": ("a.tar", tarred({"a": b""}, kind=kind), "'a' is a link or a device")
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
    },
    "a zip bomb": ("a.zip", zipped(ZEROS), "expands to over 100 times"),
    "a tar bomb": ("a.tgz", tarred(ZEROS, "w:gz"), "expands to over 100 times"),
    "a long header": ("a.tar", LONG_HEADER.tobuf(tarfile.GNU_FORMAT), "damaged"),
    "a long header in a bomb": (
        "a.tgz", gzip.compress(LONG_HEADER.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 25)),
        "expands to over 100 times",
    ),
    "another content": ("a.tar", tarred({"b": b"", "there": b"theirs"}), "there already, with"),
    **{
        f"half of {name}": (name, content[: len(content) // 2], "damaged|cannot be unpacked")
        for name, content in (
            ("a.zip", zipped(NOISE)), ("a.tar", tarred(NOISE)), ("a.tgz", tarred(NOISE, "w:gz"))
        )
    },
    **{
        f"{content!r} as {name}": (name, content, "damaged|cannot be unpacked")
        for name in ("a.zip", "a.tar", "a.tgz")
        for content in (b"", b"no archive at all", b"PK\x05\x06", b"\x1f\x8b")
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_or_damaged_archive_changes_nothing(tmp_path, kind):
    name, content, message = HOSTILE[kind]
    archive, folder = tmp_path / name, tmp_path / "outer/inner"
    archive.write_bytes(content)
    folder.mkdir(parents=True)
    (folder / "there").write_bytes(b"mine")
    with pytest.raises(UserError, match=message) as caught:
        unpack(archive, name, folder)
    assert str(archive) in str(caught.value) and len(str(caught.value)) < 600
    assert files_in(tmp_path) == {name: content, "outer/inner/there": b"mine"}
    assert list(folder.iterdir()) == [folder / "there"]


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_names_of_a_zip_never_lead_out_of_the_folder(tmp_path, name):
    (tmp_path / "a.zip").write_bytes(zipped({name: b"bad"}))
    unpack(tmp_path / "a.zip", "a.zip", tmp_path / "in/here")
    others = set(files_in(tmp_path)) - {"a.zip"}
    assert others and all(path.startswith("in/here/") for path in others)


def test_a_zip_with_false_sizes_or_a_password_is_refused(tmp_path):
    content = bytearray(zipped({"a": b"x" * 1000}))
    directory = content.rindex(b"PK\x01\x02")
    path = tmp_path / "a.zip"
    for place, value in ((8, 1), (24, 10)):  # flags, size
        changed = bytearray(content)
        changed[directory + place] = value
        path.write_bytes(changed)
        with pytest.raises(UserError, match="a.zip: damaged"):
            unpack(path, path.name, tmp_path / "in")
        assert zipfile.is_zipfile(path) and files_in(tmp_path / "in") == {}
