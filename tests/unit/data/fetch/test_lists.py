"""Lists of files to fetch: what is accepted, and the built-in ones."""

import pytest

from tests.unit.data.fetch.conftest import write_list
from utils.data.fetch.download import FOLDER, find_list
from utils.errors import UserError

GOOD = {"url": "https://example.com/a.zip", "sha256": "0" * 64, "size": 10, "path": "a/b.zip"}


def test_a_list_is_read(tmp_path):
    path = write_list(tmp_path, {**GOOD, "unpack": "c", "sha256": "AB" * 32}, then="Train.")
    found = find_list(str(path))
    assert (found.about, found.then) == ("A list.", "Train.")
    assert found.items == (("https://example.com/a.zip", "ab" * 32, 10, "a/b.zip", "c"),)
    least = {**GOOD, "url": "http://example.com:80/é".replace("é", "%C3"), "size": None}
    assert find_list(str(write_list(tmp_path, least))).items[0].url == least["url"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("url", x) for x in (
            None, 1, "", "example.com/a", "file:///etc/passwd", "ftp://a/b", "https://",
            "https:///a", "https://a b/c", "https://user:word@a/b", "https://[a/b", "https://a:x/b",
            "https://é/b", "data:,a", "https://a/" + "b" * 2001, "https://a/\n",
        )),
        *(("sha256", x) for x in (1, "", "0" * 63, "0" * 65, "g" * 64)),
        *(("size", x) for x in (0, -1, 1.5, True, "10", 1 << 41)),
        *(("path", x) for x in (
            None, "", "/a", "../a", "a/../b", "a//b", "a/", ".", "a\\b", "a\nb", ".a", ".a/b",
            "a" * 201, "a/" * 500 + "b",
        )),
        *(("unpack", x) for x in (1, "", "/a", "..", "a/../..")),
        ("more", 1),
    ],
)  # fmt: skip
def test_a_wrong_value_is_an_error_that_names_it(tmp_path, key, value):
    path = write_list(tmp_path, {**GOOD, key: value})
    with pytest.raises(UserError) as caught:
        find_list(str(path))
    assert str(path) in str(caught.value) and key in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "document", ["[]", "a: 1", "files: []\nabout: a", "about: [1]\nfiles: 3", "files: [{url: a}]"]
)
def test_what_is_no_list_is_an_error(tmp_path, document):
    path = tmp_path / "list.yaml"
    path.write_text(document)
    with pytest.raises(UserError, match=str(path)):
        find_list(str(path))


def test_plain_http_needs_a_hash_and_an_archive_its_suffix(tmp_path):
    http = {**GOOD, "url": "http://example.com/a.zip", "sha256": None}
    with pytest.raises(UserError, match="it is needed for an address without https"):
        find_list(str(write_list(tmp_path, http)))
    with pytest.raises(UserError, match="to unpack it, .zip, .tar"):
        find_list(str(write_list(tmp_path, {**GOOD, "path": "a.pt", "unpack": "b"})))


def test_the_built_in_lists_are_pinned_and_of_those_who_made_the_files():
    servers = {
        "coco": "http://images.cocodataset.org/",
        "voc": "http://host.robots.ox.ac.uk/pascal/VOC/",
        "yolov5": "https://github.com/ultralytics/yolov5/releases/download/v7.0/",
    }
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(servers)
    for name, server in servers.items():
        items = find_list(name).items
        assert all(x.sha256 and x.size and x.url.startswith(server) for x in items)
        assert len({x.sha256 for x in items}) == len({x.name for x in items}) == len(items)
    with pytest.raises(UserError, match="a list is a YAML file, or one of: coco, voc, yolov5"):
        find_list("imagenet")
