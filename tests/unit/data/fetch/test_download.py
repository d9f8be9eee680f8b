"""Lists of files to fetch, and archives: hostile ones change nothing and write nowhere else."""

import gzip
import os
import re
import tarfile
import zipfile

import pytest

from duet.utils.data.fetch.download import FETCH_FOLDER, find_list, unpack
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.errors import UserError
from duet.utils.project import how_to_fetch
from duet.utils.weights.load import load_weights
from tests.unit.data.fetch.conftest import files_in, tarred, write_list, zipped

GOOD = {"url": "https://example.com/a.zip", "sha256": "0" * 64, "size": 10, "path": "a/b.zip"}


def test_download_list_is_parsed(tmp_path):
    path = write_list(tmp_path, {**GOOD, "unpack": "c", "sha256": "AB" * 32}, then="Train.")
    found = find_list(str(path))
    assert (found.about, found.then) == ("A list.", "Train.")
    assert found.items == (("https://example.com/a.zip", "ab" * 32, 10, "a/b.zip", "c"),)
    least = {**GOOD, "url": "http://example.com:80/é".replace("é", "%C3"), "size": None}
    assert find_list(str(write_list(tmp_path, least))).items[0].url == least["url"]


WRONG = [
    *(({**GOOD, key: value}, key) for key, values in {
        "url": (
            None, 1, "", "example.com/a", "file:///etc/passwd", "ftp://a/b", "https://",
            "https:///a", "https://a b/c", "https://user:word@a/b", "https://[a/b", "https://a:x/b",
            "https://é/b", "data:,a", "https://a/" + "b" * 2001, "https://a/\n",
        ),
        "sha256": (1, "", "0" * 63, "0" * 65, "g" * 64),
        "size": (0, -1, 1.5, True, "10", 1 << 41),
        "path": (
            None, "", "/a", "../a", "a/../b", "a//b", "a/", ".", "a\\b", "a\nb", ".a", ".a/b",
            "a" * 201, "a/" * 500 + "b", "C:a", "D:/a",  # on another drive of Windows
        ),
        "unpack": (1, "", "/a", "..", "a/../.."),
        "more": (1,),
    }.items() for value in values),
    ({**GOOD, "url": "http://a.com/a.zip", "sha256": None}, "is required for a URL without https"),
    ({**GOOD, "path": "a.pt", "unpack": "b"}, "can unpack only .zip, .tar"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "text"), WRONG)
def test_wrong_list_value_is_an_error_that_names_it(tmp_path, file, text):
    path = write_list(tmp_path, file)
    with pytest.raises(UserError) as caught:
        find_list(str(path))
    assert str(path) in str(caught.value) and text in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "document", ["[]", "a: 1", "files: []\nabout: a", "about: [1]\nfiles: 3", "files: [{url: a}]"]
)
def test_file_that_is_no_download_list_is_an_error(tmp_path, document):
    path = tmp_path / "list.yaml"
    path.write_text(document)
    with pytest.raises(UserError, match=str(path)):
        find_list(str(path))


def test_a_folder_of_the_name_of_a_list_does_not_hide_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "coco128").mkdir()
    assert find_list("coco128").items[0].name == "coco128.zip"


def test_built_in_lists_are_pinned_to_their_publishers():
    servers = {
        "bccd": "https://github.com/Shenggan/BCCD_Dataset/archive/",
        "coco128": "https://github.com/ultralytics/yolov5/releases/download/v1.0/",
        "coco": "http://images.cocodataset.org/",
        "voc": "http://host.robots.ox.ac.uk/pascal/VOC/",
        "yolov5-cls": "https://github.com/ultralytics/yolov5/releases/download/v7.0/",
        "yolov5-seg": "https://github.com/ultralytics/yolov5/releases/download/v7.0/",
        "yolov5": "https://github.com/ultralytics/yolov5/releases/download/v7.0/",
    }
    assert {path.stem for path in FETCH_FOLDER.glob("*.yaml")} == set(servers)
    for name, server in servers.items():
        items = find_list(name).items
        has_hashes = name not in ("bccd", "coco128", "yolov5-cls", "yolov5-seg")  # published ones
        assert all(x.url.startswith(server) for x in items)
        assert all(bool(x.sha256 and x.size) is has_hashes for x in items)
        assert len({x.sha256 for x in items}) == (len(items) if has_hashes else 1)
        assert len({x.name for x in items}) == len(items)
    with pytest.raises(UserError, match="LIST imagenet: no such list; .*: bccd, coco, coco128,"):
        find_list("imagenet")
    with pytest.raises(UserError, match="LIST yolov5n.pt: no such list; `duet fetch yolov5 "):
        find_list("yolov5n.pt")


def test_missing_file_error_names_its_fetch_command(tmp_path, monkeypatch):
    commands = {
        "yolov5m.pt": "yolov5 yolov5m.pt", "d/yolov5x6.pt": "yolov5 yolov5x6.pt",
        "yolov5s-seg.pt": "yolov5-seg yolov5s-seg.pt",
        "yolov5n-cls.pt": "yolov5-cls yolov5n-cls.pt",
        "coco.yaml": "coco", "coco128": "coco128", "data/VOC.yaml": "voc",
    }  # fmt: skip
    for name, words in commands.items():
        assert f"`duet fetch {words}`" in how_to_fetch(name)
    assert not any(map(how_to_fetch, ("best.pt", "yolov5s-pose.pt", "imagenet.yaml", "")))
    for name in ("yolov5", "yolov5-seg", "yolov5-cls"):
        assert all(f"fetch {name} {x.name}`" in how_to_fetch(x.name) for x in find_list(name).items)
    (tmp_path / "coco.yaml").write_text("path: absent\ntrain: a\nval: b\nnames: [c]\n")
    absent = ((load_weights, "yolov5m.pt"), (load_dataset, "VOC.yaml"))
    for load, place in (*absent, (load_dataset, tmp_path / "coco.yaml")):
        with pytest.raises(UserError, match=re.escape(how_to_fetch(place))):
            load(place)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "datasets" / "yolov5").mkdir(parents=True)
    (tmp_path / "datasets" / "yolov5" / "yolov5m.pt").touch()
    with pytest.raises(UserError, match=r"no such file; it is in datasets.yolov5.yolov5m\.pt"):
        load_weights("yolov5m.pt")


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
def test_archive_is_unpacked_beside_existing_files(tmp_path, name, content):
    (tmp_path / "VOC").mkdir()
    (tmp_path / "VOC/mine").write_bytes(b"mine")
    (tmp_path / "图片 1.jpg").write_bytes(FILES["图片 1.jpg"])
    (tmp_path / name).write_bytes(content)
    assert unpack(tmp_path / name, name, tmp_path) == 2
    assert files_in(tmp_path) == FILES | {"VOC/mine": b"mine", name: content}


HOSTILE = {
    "a name above": ("a.tar", tarred({"good": b"", "../x": b""}), "contains unsafe paths"),
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
    "a folder in a file": ("a.tar", tarred({"b": b"", "there/c": b""}), "there already, with"),
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
def test_hostile_or_damaged_archive_changes_nothing(tmp_path, kind):
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


@pytest.mark.parametrize("inside", ["link", "link/b"])
def test_dangling_link_blocks_unpacking(tmp_path, inside):
    (tmp_path / "a.tar").write_bytes(tarred({"a": b"", inside: b""}))
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "link").symlink_to("nowhere")
    with pytest.raises(UserError, match="there already, with"):
        unpack(tmp_path / "a.tar", "a.tar", folder)
    assert os.listdir(folder) == ["link"]


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_zip_names_never_escape_the_folder(tmp_path, name):
    (tmp_path / "a.zip").write_bytes(zipped({name: b"bad"}))
    unpack(tmp_path / "a.zip", "a.zip", tmp_path / "in/here")
    others = set(files_in(tmp_path)) - {"a.zip"}
    assert others and all(path.startswith("in/here/") for path in others)


def test_zip_with_false_sizes_or_password_is_refused(tmp_path):
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
