"""`duet fetch`: files come whole or not at all, and an ended command goes on."""

import json
import shutil
import signal
import subprocess
import sys
import time

import cv2
import numpy as np
import pytest

from duet.utils.data.fetch import __main__ as command
from duet.utils.data.fetch import download
from duet.utils.data.fetch.download import Item, find_list
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import UserError
from duet.utils.project import PROJECT
from tests.unit.data.fetch.conftest import files_in, sha256, tarred, write_list, zipped
from tests.unit.data.formats.annotation_files import HEIGHT, WIDTH, coco, coco_object

CONTENT = np.random.default_rng(0).bytes(3_000_000)
FILES = {"VOC/a/1.jpg": b"one", "VOC/b/2.jpg": b"two" * 1000}
ZIP = zipped(FILES)


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Fetch the files of a list into tmp_path/out; return what was printed."""

    def run(*files, names=(), **changes):
        path = write_list(tmp_path, *files, **changes)
        monkeypatch.setattr(
            "sys.argv", ["fetch", str(path), *names, "--out", str(tmp_path / "out")]
        )
        command.main()
        return capsys.readouterr().out.splitlines()

    return run


def file_of(url, content=CONTENT, **changes):
    file = {"url": url, "sha256": sha256(content), "size": len(content), "path": "sub/data.bin"}
    return {**file, **changes}


def test_fetched_file_is_not_fetched_again(site, run, tmp_path):
    file = file_of(site.put("/a", CONTENT))
    other = {**file, "path": "never"}
    lines = run(file, other, names=["data.bin"], then="train with --data DIR/x")
    assert lines == ["A list.", f"  {site.root}/a: 3,000,000 bytes, sub/data.bin",
                     f"into {tmp_path / 'out'}", "data.bin: fetched", "1 file there",
                     f"train with --data {tmp_path / 'out'}/x"]  # fmt: skip
    assert files_in(tmp_path / "out") == {"sub/data.bin": CONTENT}
    assert "data.bin: there already" in run(file) and site.asked == [("/a", None)]
    with pytest.raises(UserError, match="d.zip: not in the list; it has data.bin"):
        run(file, names=["d.zip"])
    target = tmp_path / "out/sub/data.bin"
    target.write_bytes(b"mine")
    with pytest.raises(UserError, match=f"already exists .*{sha256(b'mine')}.*{sha256(CONTENT)}"):
        run(file)
    assert target.read_bytes() == b"mine"
    target.rename(target.with_name("data.bin.part"))
    with pytest.raises(UserError, match="Run again if it continued an earlier download"):
        run(file)
    run(file)
    assert files_in(tmp_path / "out") == {"sub/data.bin": CONTENT}
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "out").write_text("a file")
    with pytest.raises(
        UserError, match="cannot be written: [^[]*: File exists; choose another folder"
    ):
        run(file)


@pytest.mark.parametrize("changes", [{}, {"size": None}])
@pytest.mark.parametrize("has_ranges", [True, False])
def test_next_command_resumes_a_cut_download(site, run, tmp_path, has_ranges, changes):
    """Without a size nothing says where the rest begins, and all comes again."""
    file = file_of(site.put("/a", CONTENT), **changes)
    site.cuts, site.has_ranges = [1_000_000], has_ranges
    with pytest.raises(UserError, match="ended after 1,000,000 of 3,000,000 bytes; the partial"):
        run(file)
    assert files_in(tmp_path / "out") == {"sub/data.bin.part": CONTENT[:1_000_000]}
    run(file)
    assert files_in(tmp_path / "out") == {"sub/data.bin": CONTENT}
    assert site.asked == [("/a", None), ("/a", None if changes else "bytes=1000000-")]


WRONG = {  # path on the server, what differs in the list, and the message
    "a hash": ("/a", {"sha256": sha256(b"x")}, f"{sha256(CONTENT)}.*{sha256(b'x')}.*was removed"),
    "too many bytes": ("/a", {"size": 1000}, "sends more than 1,000 bytes; correct the list"),
    "too few bytes": ("/a", {"size": 3_000_001}, "ended after 3,000,000 of 3,000,001 bytes"),
    "no file": (
        "/b",
        {},
        "404.*; correct the URL in the list; or download it by other means and put it at ",
    ),
    "a folder in its place": ("/a", {"path": "sub"}, "is a folder, not a regular file"),
    "a redirect without end": ("/1", {}, "infinite loop"),
    "a redirect to a file": ("/file", {}, "not allowed"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_download_fails_and_completes_no_file(site, run, tmp_path, kind):
    path, changes, message = WRONG[kind]
    site.put("/a", CONTENT)
    site.redirects = {"/1": "/2", "/2": "/1", "/file": "file:///etc/passwd"}
    (tmp_path / "out/sub").mkdir(parents=True)
    with pytest.raises(UserError, match=message):
        run(file_of(site.root + path, **changes))
    assert set(files_in(tmp_path / "out")) <= {"sub/data.bin.part"}


def test_offline_fetch_says_what_to_do_and_leaves_no_file(run, tmp_path):
    with pytest.raises(UserError) as caught:  # port 9 is closed
        run(file_of("http://127.0.0.1:9/a"))
    for words in (
        "/a: Connection refused; ",
        "check the network; behind a proxy set https_proxy=",
        "and put it at ",
    ):
        assert words in str(caught.value)
    assert "partial file" not in str(caught.value)
    assert not any(path.is_file() for path in (tmp_path / "out/sub").rglob("*"))


def test_download_without_hash_requires_https(site, tmp_path):
    """The list asks for https; a redirect may lead elsewhere."""
    site.put("/a", CONTENT)
    item = Item(f"{site.root}/a", None, len(CONTENT), "data.bin")
    with pytest.raises(UserError, match="redirects to .*/a, which needs a 'sha256' in the list"):
        download.download(item, tmp_path / "data.bin.part")


def test_archives_share_a_folder_and_are_fetched_once(site, run, tmp_path):
    more = tarred({"VOC/a/2.jpg": b"2", "VOC/b/2.jpg": FILES["VOC/b/2.jpg"]}, "w:gz")
    files = [
        file_of(site.put("/1", ZIP), ZIP, path="x/1.zip", unpack="y"),
        file_of(site.put("/2", more), more, path="x/2.tgz", unpack="y"),
    ]
    assert "1.zip: fetched, 2 files unpacked" in run(*files)
    unpacked = FILES | {"VOC/a/2.jpg": b"2"}
    assert files_in(tmp_path / "out/y") == unpacked
    assert set(files_in(tmp_path / "out/x")) == {"1.zip.unpacked", "2.tgz.unpacked"}
    again = run(*files)
    assert sum("unpacked already; to unpack it again, delete" in line for line in again) == 2
    assert len(site.asked) == 2
    with pytest.raises(UserError, match="its SHA-256 is"):
        run({**files[0], "sha256": sha256(b"another version")})


def test_existing_archive_is_unpacked_and_kept(site, run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/data.zip").write_bytes(ZIP)
    url = "https://127.0.0.1:9/never"
    lines = run(file_of(url, ZIP, path="data.zip", unpack="y", sha256=None))
    pin = f"; to pin it, write sha256: '{sha256(ZIP)}' into the list"
    assert f"data.zip: there already, 2 files unpacked{pin}" in lines
    assert files_in(tmp_path / "out/y") == FILES
    assert files_in(tmp_path / "out")["data.zip"] == ZIP


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_killed_fetch_resumes_later(site, run, tmp_path, end):
    file = file_of(site.put("/a", CONTENT))
    path, part = write_list(tmp_path, file), tmp_path / "out/sub/data.bin.part"
    site.pauses = [2_000_000]
    call = [sys.executable, "-m", "duet", "fetch", path, "--out", tmp_path / "out"]
    with subprocess.Popen(call, cwd=PROJECT, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not (part.exists() and part.stat().st_size > 500_000):
            time.sleep(0.01)
        with pytest.raises(UserError, match="another process fetches into it"):
            run(file)
        process.send_signal(end)
    assert process.returncode == (130 if end == signal.SIGINT else -end)
    came = part.stat().st_size
    site.go_on.set()
    run(file)
    assert site.asked == [("/a", None), ("/a", f"bytes={came}-")]
    assert files_in(tmp_path / "out") == {"sub/data.bin": CONTENT}


def test_fetch_without_a_list_shows_the_available_lists(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fetch"])
    command.main()
    lines = capsys.readouterr().out.splitlines()
    names = [line.partition(":")[0] for line in lines]
    assert names == ["bccd", "coco", "coco128", "voc", "yolov5", "yolov5-cls", "yolov5-seg"]
    assert all(len(line) > 40 for line in lines)


def test_fetched_coco_is_a_dataset(site, run, tmp_path):
    """Small archives with the layout of COCO's own, at the places that the list names."""
    image = cv2.imencode(".jpg", np.zeros((HEIGHT, WIDTH, 3), np.uint8))[1].tobytes()
    names = {"train2017": "000000000001.jpg", "val2017": "000000000002.jpg"}
    annotations = {
        f"annotations/instances_{split}.json": json.dumps(coco([coco_object([2, 3, 9, 9])], [name]))
        for split, name in names.items()
    }
    contents = {f"{split}.zip": zipped({f"{split}/{name}": image}) for split, name in names.items()}
    contents["annotations_trainval2017.zip"] = zipped(annotations)
    found, files = find_list("coco"), []
    for item in found.items:
        url = site.put(f"/{item.name}", contents[item.name])
        files.append(file_of(url, contents[item.name], path=item.path, unpack=item.unpack))
    assert run(*files, then=found.then)[-1] == f"train with --data {tmp_path / 'out/coco'}"
    dataset = load_dataset(tmp_path / "out/coco", splits=("train", "val"))
    assert dataset.class_names == ("cat", "dog", "owl")
    assert [len(load_split(dataset, split)) for split in ("train", "val")] == [1, 1]
