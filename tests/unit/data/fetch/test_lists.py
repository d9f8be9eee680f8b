"""Lists of files to fetch: what is accepted, and the command on the built-in ones."""

from __future__ import annotations

import hashlib
import re
import signal
import subprocess
import sys
import time

import pytest
import yaml

from tests.loopback_site import loopback_site
from utils.data.fetch import __main__ as command
from utils.data.fetch.lists import FOLDER, choose, find_list
from utils.errors import UserError
from utils.files.project import PROJECT

GOOD = {"url": "https://example.com/a.zip", "sha256": "0" * 64, "size": 10, "path": "a/b.zip"}


def write(folder, *files, **changes):
    path = folder / "list.yaml"
    path.write_text(yaml.safe_dump({"about": "A list.", "files": list(files), **changes}))
    return path


def test_a_list_is_read(tmp_path):
    path = write(tmp_path, {**GOOD, "unpack": "c", "sha256": "AB" * 32}, then="Train.")
    found = find_list(str(path))
    assert (found.about, found.then) == ("A list.", "Train.")
    assert found.items == (("https://example.com/a.zip", "ab" * 32, 10, "a/b.zip", "c"),)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("url", x) for x in (
            None, 1, "", "example.com/a", "file:///etc/passwd", "ftp://a/b", "https://", "https:///a",
            "https://a b/c", "https://user:word@a/b", "https://[a/b", "https://a:x/b", "https://a:0/b",
            "https://é/b", "data:,a", "HTTPS", "https://a/" + "b" * 2000, "https://a/\n",
        )),
        *(("sha256", x) for x in (1, "", "0" * 63, "0" * 65, "g" * 64, 10**63)),
        *(("size", x) for x in (0, -1, 1.5, True, "10", 1 << 41)),
        *(("path", x) for x in (
            None, "", "/a", "../a", "a/../b", "a//b", "a/", ".", "a\\b", "a\nb", "a.part",
            "a.unpacked", ".a", "a" * 201, "a.part/b", "a.unpacked/b", ".a/b",
            "a/" * 500 + "b",
        )),
        *(("unpack", x) for x in (1, "", "/a", "..", "a/../..", "a/b.zip", "a/b.zip/c")),
        ("more", 1),
    ],
)  # fmt: skip
def test_a_wrong_value_is_an_error_that_names_it(tmp_path, key, value):
    path = write(tmp_path, {**GOOD, key: value})
    with pytest.raises(UserError) as caught:
        find_list(str(path))
    assert str(path) in str(caught.value) and key in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("missing", GOOD)
def test_a_missing_key_is_an_error(tmp_path, missing):
    path = write(tmp_path, {key: value for key, value in GOOD.items() if key != missing})
    with pytest.raises(
        UserError, match="file 1 has the keys .* needed are url, sha256, size, path"
    ):
        find_list(str(path))


@pytest.mark.parametrize("document", ["[]", "a: 1", "files: []\nabout: a", "about: [1]\nfiles: 3"])
def test_what_is_no_list_is_an_error(tmp_path, document):
    path = tmp_path / "list.yaml"
    path.write_text(document)
    with pytest.raises(UserError, match=str(path)):
        find_list(str(path))


def test_plain_http_needs_a_hash_and_an_archive_its_suffix(tmp_path):
    http = {**GOOD, "url": "http://example.com/a.zip"}
    assert find_list(str(write(tmp_path, http))).items[0].url == http["url"]
    with pytest.raises(UserError, match="the hash of a file whose url is not https is needed"):
        find_list(str(write(tmp_path, {**http, "sha256": None})))
    with pytest.raises(UserError, match="an archive to unpack: .zip, .tar"):
        find_list(str(write(tmp_path, {**GOOD, "path": "a.pt", "unpack": "b"})))


@pytest.mark.parametrize("path", ["a/b.zip", "c/b.zip"])
def test_two_files_of_one_name_are_an_error(tmp_path, path):
    with pytest.raises(UserError, match="another file name for each"):
        find_list(str(write(tmp_path, GOOD, {**GOOD, "path": path})))


@pytest.mark.parametrize(
    "other", [{"path": "a/b.zip/c"}, {"path": "c.zip", "unpack": "a/b.zip"},
              {"path": "c.zip", "unpack": "a/b.zip/c"}],
)  # fmt: skip
def test_a_file_in_the_place_of_a_folder_is_an_error(tmp_path, other):
    for files in ((GOOD, {**GOOD, **other}), ({**GOOD, **other}, GOOD)):
        with pytest.raises(UserError, match="another place than that of the file a/b.zip is"):
            find_list(str(write(tmp_path, *files)))


@pytest.mark.parametrize("unpack", ["a", "a/b", "a/b.zips", "c", "b.zip"])
def test_an_archive_may_lie_where_it_is_unpacked(tmp_path, unpack):
    path = write(tmp_path, {**GOOD, "unpack": unpack})
    assert find_list(str(path)).items[0].unpack == unpack


def test_files_are_chosen_by_name(tmp_path):
    found = find_list(str(write(tmp_path, GOOD, {**GOOD, "path": "c.zip"})))
    assert [item.name for item in choose(found, ["c.zip"])] == ["c.zip"]
    assert len(choose(found, [])) == 2
    with pytest.raises(UserError, match="d.zip: not in the list; it has b.zip, c.zip"):
        choose(found, ["d.zip"])


@pytest.mark.parametrize("name", ["coco", "voc", "yolov5"])
def test_the_built_in_lists_are_pinned(name):
    found = find_list(name)
    assert all(item.sha256 and item.size for item in found.items)
    assert len({item.sha256 for item in found.items}) == len(found.items)


def test_the_built_in_lists_are_all_tested():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == {"coco", "voc", "yolov5"}


def test_an_unknown_list_names_the_known_ones():
    with pytest.raises(UserError, match="a list is a YAML file, or one of: coco, voc, yolov5"):
        find_list("imagenet")


def test_the_command_shows_what_it_fetches_and_where_it_is(tmp_path, monkeypatch, capsys):
    with loopback_site() as site:
        url = site.put("/a", b"content")
        file = {
            "url": url,
            "sha256": hashlib.sha256(b"content").hexdigest(),
            "size": 7,
            "path": "a",
        }
        other = {**GOOD, "path": "never.zip"}
        path = write(tmp_path, file, other, then="Go on.")
        arguments = [str(path), "a", "--out", str(tmp_path / "out")]
        monkeypatch.setattr("sys.argv", ["fetch", *arguments])
        command.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["A list.", f"  {url}: 7 bytes, a", f"into {tmp_path / 'out'}",
                     "a: fetched", "1 file there", "Go on."]  # fmt: skip
    assert (tmp_path / "out/a").read_bytes() == b"content"
    assert re.search("never", "".join(lines)) is None


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_ended_goes_on_later(tmp_path, monkeypatch, end):
    content = bytes(range(256)) * 8000
    with loopback_site() as site:
        digest = hashlib.sha256(content).hexdigest()
        file = {"url": site.put("/a", content), "sha256": digest, "size": None, "path": "a"}
        path, part = write(tmp_path, file), tmp_path / "out/a.part"
        site.pauses = [1_000_000]
        call = [sys.executable, "-m", "utils.data.fetch", path, "--out", tmp_path / "out"]
        with subprocess.Popen(call, cwd=PROJECT, stdout=subprocess.DEVNULL) as process:
            # What came is written in blocks: the last one may still be in memory.
            while process.poll() is None and not (part.exists() and part.stat().st_size > 500_000):
                time.sleep(0.01)
            process.send_signal(end)
        assert process.returncode == (130 if end == signal.SIGINT else -end)
        assert [x.name for x in sorted((tmp_path / "out").glob("a*"))] == ["a.part", "a.part.said"]
        site.hold.set()
        came = part.stat().st_size
        monkeypatch.setattr("sys.argv", list(map(str, call[2:])))
        command.main()
    assert site.asked == [("/a", None), ("/a", f"bytes={came}-")]
    assert (tmp_path / "out/a").read_bytes() == content


def test_a_folder_that_cannot_be_written_is_a_user_error(tmp_path, monkeypatch):
    (tmp_path / "out").write_text("a file")
    monkeypatch.setattr("sys.argv", ["fetch", "coco", "--out", str(tmp_path / "out")])
    with pytest.raises(UserError, match="--out .*: cannot be written"):
        command.main()
