"""Files of a list are fetched in parts, compared, unpacked, and never half used."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile
import zipfile

import numpy as np
import pytest

from tests.loopback_site import loopback_site
from utils.data.fetch import connection, download, fetching
from utils.data.fetch.fetching import fetch, locked, require_space_for
from utils.data.fetch.lists import Item
from utils.errors import UserError

CONTENT = np.random.default_rng(0).bytes(3_000_000)


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(download, "WAITS_S", (0, 0))
    with loopback_site() as site:
        yield site


def item_of(url, content=CONTENT, **changes):
    whole = Item(url, sha256(content), len(content), "sub/data.bin", None)
    return whole._replace(**changes)


def files_in(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_comes_and_is_not_fetched_again(site, tmp_path):
    item = item_of(site.put("/a", CONTENT))
    assert fetch(item, tmp_path) == "data.bin: fetched"
    assert (tmp_path / "sub/data.bin").read_bytes() == CONTENT
    assert files_in(tmp_path) == ["data.bin"]
    assert fetch(item, tmp_path) == "data.bin: there already"
    assert site.asked == [("/a", None)]


def test_a_cut_connection_goes_on_where_it_ended(site, tmp_path, caplog):
    item = item_of(site.put("/a", CONTENT, '"1"'))
    site.cuts = [1_000_000, 500_000]
    fetch(item, tmp_path)
    assert (tmp_path / "sub/data.bin").read_bytes() == CONTENT
    assert site.asked == [("/a", None), ("/a", "bytes=1000000-"), ("/a", "bytes=1500000-")]
    assert caplog.text.count("the connection ended after") == 2


def test_the_next_command_goes_on_with_what_came(site, tmp_path):
    item = item_of(site.put("/a", CONTENT, '"1"'))
    site.cuts = [1_000_000]

    def ask_once(*arguments):
        if len(site.asked) == 1:
            raise KeyboardInterrupt
        return connection.ask(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(download, "ask", ask_once)
        with pytest.raises(KeyboardInterrupt):
            fetch(item, tmp_path)
    assert files_in(tmp_path) == ["data.bin.part", "data.bin.part.said"]
    assert (tmp_path / "sub/data.bin.part").read_bytes() == CONTENT[:1_000_000]
    fetch(item, tmp_path)
    assert site.asked[1:] == [("/a", "bytes=1000000-")]
    assert (tmp_path / "sub/data.bin").read_bytes() == CONTENT
    assert files_in(tmp_path) == ["data.bin"]


def test_a_whole_part_is_only_compared(site, tmp_path):
    item = item_of(site.put("/a", CONTENT))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/data.bin.part").write_bytes(CONTENT)
    fetch(item, tmp_path)
    assert site.asked == []


def test_a_server_without_ranges_sends_all_again(site, tmp_path):
    item = item_of(site.put("/a", CONTENT, '"1"'))
    site.cuts, site.has_ranges = [1_000_000], False
    fetch(item, tmp_path)
    assert (tmp_path / "sub/data.bin").read_bytes() == CONTENT


def test_a_file_that_was_exchanged_meanwhile_comes_from_its_start(site, tmp_path, monkeypatch):
    """Without a hash, its ETag alone tells."""
    old, new = CONTENT, CONTENT[::-1]
    item = item_of(site.put("/a", old, '"1"'), sha256=None)
    site.cuts = [1_000_000]
    monkeypatch.setattr(download.time, "sleep", lambda seconds: site.put("/a", new, '"2"'))
    fetch(item, tmp_path)
    assert (tmp_path / "sub/data.bin").read_bytes() == new


@pytest.mark.parametrize("tag", ["", 'W/"1"'])
def test_without_hash_and_sure_tag_nothing_is_joined(site, tmp_path, tag):
    item = item_of(site.put("/a", CONTENT, tag), sha256=None)
    site.cuts = [1_000_000]
    fetch(item, tmp_path)
    assert site.asked == [("/a", None), ("/a", None)]
    assert (tmp_path / "sub/data.bin").read_bytes() == CONTENT


def test_a_file_without_a_hash_in_the_list_is_told_with_its_hash(site, tmp_path):
    item = item_of(site.put("/a", CONTENT), sha256=None, size=None)
    told = fetch(item, tmp_path)
    assert f"the list has no hash of it: to pin it, write sha256: '{sha256(CONTENT)}'" in told
    assert sha256(CONTENT) in fetch(item, tmp_path)


def test_a_wrong_hash_uses_nothing_and_names_both(site, tmp_path):
    wrong = sha256(b"other")
    item = item_of(site.put("/a", CONTENT), sha256=wrong)
    with pytest.raises(UserError) as caught:
        fetch(item, tmp_path)
    assert sha256(CONTENT) in str(caught.value) and wrong in str(caught.value)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("size", [1000, len(CONTENT)])
def test_a_part_of_another_file_is_fetched_anew(site, tmp_path, caplog, size):
    item = item_of(site.put("/a", CONTENT))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/data.bin.part").write_bytes(bytes(size))
    fetch(item, tmp_path)
    assert (tmp_path / "sub/data.bin").read_bytes() == CONTENT
    assert "the earlier download is of another file" in caplog.text


def test_another_file_in_its_place_stays(site, tmp_path):
    item = item_of(site.put("/a", CONTENT))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/data.bin").write_bytes(b"mine")
    with pytest.raises(UserError) as caught:
        fetch(item, tmp_path)
    assert sha256(b"mine") in str(caught.value) and sha256(CONTENT) in str(caught.value)
    assert (tmp_path / "sub/data.bin").read_bytes() == b"mine"
    assert site.asked == []


@pytest.mark.parametrize("more", [-1, 1])
def test_another_size_on_the_server_is_told_before_it_comes(site, tmp_path, more):
    item = item_of(site.put("/a", CONTENT), size=len(CONTENT) + more)
    with pytest.raises(UserError, match=rf"has 3,000,000 bytes .* list says {item.size:,}"):
        fetch(item, tmp_path)
    assert not (tmp_path / "sub/data.bin").exists()


def test_more_bytes_than_the_list_says_are_not_taken(site, tmp_path):
    site.tells_length = False
    item = item_of(site.put("/a", CONTENT), size=1000)
    with pytest.raises(UserError, match="sends more than 1,000 bytes"):
        fetch(item, tmp_path)
    assert download.size_of(tmp_path / "sub/data.bin.part") == 0


def test_an_end_that_nobody_can_tell_from_a_cut_is_refused(site, tmp_path):
    site.tells_length = False
    item = item_of(site.put("/a", CONTENT), size=None, sha256=None)
    with pytest.raises(UserError, match="neither the list nor the server gives its size"):
        fetch(item, tmp_path)


@pytest.mark.parametrize("status", [403, 404, 410, 501])
def test_a_server_that_does_not_have_it_is_asked_once(site, tmp_path, status):
    site.statuses = [status]
    with pytest.raises(UserError, match=f"the server answers {status} "):
        fetch(item_of(site.put("/a", CONTENT)), tmp_path)
    assert len(site.asked) == 1


def test_a_server_that_is_busy_is_asked_again(site, tmp_path, caplog):
    site.statuses = [503, 429]
    fetch(item_of(site.put("/a", CONTENT)), tmp_path)
    assert "the server answers 503" in caplog.text
    site.statuses = [500] * 9
    with pytest.raises(
        UserError, match="500 .*; the downloaded part is kept, start again to continue"
    ):
        fetch(item_of(site.put("/b", CONTENT), path="other"), tmp_path)
    assert len(site.statuses) == 6  # as many tries as waits, and the first


def test_a_server_that_always_sends_another_part_is_left(site, tmp_path):
    """It sends the start, then cuts; asked for the rest, it sends something else."""
    url = site.put("/a", CONTENT, '"1"')
    site.cuts, site.shift = [1_000_000] * 50, 7
    with pytest.raises(UserError, match="another range than it was asked for|connection ended"):
        fetch(item_of(url), tmp_path)
    assert len(site.asked) < 10


@pytest.mark.parametrize("length", [b"-9223372036854775809", b"zz", b"-5", b""])
def test_a_length_that_is_none_is_a_cut(site, tmp_path, length):
    chunks = b"3\r\nabc\r\n" + length + b"\r\nde\r\n0\r\n\r\n"
    site.tells_length, site.headers = False, {"Transfer-Encoding": "chunked"}
    with pytest.raises(UserError, match="the downloaded part is kept|its SHA-256 is"):
        fetch(item_of(site.put("/a", chunks), size=None), tmp_path)
    assert not (tmp_path / "sub/data.bin").exists()


def test_a_server_that_says_nothing_is_left(site, tmp_path, monkeypatch):
    monkeypatch.setattr(connection, "TIMEOUT_S", 0.1)
    site.hold.clear()
    with pytest.raises(UserError, match="timed out; the downloaded part is kept"):
        fetch(item_of(site.put("/a", CONTENT)), tmp_path)


def test_no_server_at_all_is_told(site, tmp_path):
    with pytest.raises(UserError, match="http://127.0.0.1:9/a: .*Connection refused"):
        fetch(item_of("http://127.0.0.1:9/a"), tmp_path)


def test_a_few_redirections_are_followed(site, tmp_path):
    site.put("/a", CONTENT)
    site.redirects = {"/1": "/2", "/2": f"{site.root}/a"}
    fetch(item_of(f"{site.root}/1"), tmp_path)
    assert (tmp_path / "sub/data.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "ftp://127.0.0.1/a", "data:,a", "", "http://a b/",
              "http://user:word@127.0.0.1/", "http://[x/", "//host:port/"],
)  # fmt: skip
def test_a_redirection_elsewhere_is_not_followed(site, tmp_path, place):
    site.redirects = {"/1": place}
    with pytest.raises(UserError, match="redirects to .* are followed"):
        fetch(item_of(f"{site.root}/1"), tmp_path)
    assert len(site.asked) == 1


def test_an_address_of_https_does_not_lead_to_http(monkeypatch):
    assert connection.led_on("http://a/b", "https://c/d") == "https://c/d"
    with pytest.raises(UserError, match="only redirects to https are followed"):
        connection.led_on("https://a/b", "http://c/d")


def test_redirections_without_end_are_left(site, tmp_path):
    site.redirects = {"/1": "/2", "/2": "/1"}
    with pytest.raises(UserError, match="redirects more than 5 times"):
        fetch(item_of(f"{site.root}/1"), tmp_path)
    assert len(site.asked) == 6


def test_an_encoded_answer_is_refused(site, tmp_path):
    site.headers = {"Content-Encoding": "gzip"}
    with pytest.raises(UserError, match="has the content encoding 'gzip'"):
        fetch(item_of(site.put("/a", CONTENT)), tmp_path)


def test_a_proxy_of_the_environment_is_asked(site, tmp_path, monkeypatch):
    monkeypatch.setenv("http_proxy", site.root)
    site.put("http://far.example/a", CONTENT)
    fetch(item_of("http://far.example/a"), tmp_path)
    assert site.asked == [("http://far.example/a", None)]


def test_a_full_disk_is_told_before_anything_is_asked_of_it(site, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "SPARE_BYTES", 1 << 60)
    with pytest.raises(UserError, match="3,000,000 bytes are needed in .*, and .* are free"):
        fetch(item_of(site.put("/a", CONTENT)), tmp_path)


def test_all_files_of_a_list_must_fit(tmp_path, monkeypatch):
    """Two archives and a file of 1,000 bytes: unpacked 3,000, and an archive beside; 400 came."""
    archive = Item("https://a/a", None, 1000, "a.zip", "a")
    items = [archive, archive._replace(path="b.zip"), archive._replace(path="c", unpack=None)]
    asked = []
    monkeypatch.setattr(
        fetching, "require_space", lambda folder, number, what: asked.append(number)
    )
    (tmp_path / ".a.zip.part").write_bytes(bytes(400))
    require_space_for(items, tmp_path)
    (tmp_path / "a.zip").write_bytes(b"")
    (tmp_path / "c").write_bytes(b"")
    require_space_for(items, tmp_path)
    require_space_for(items[::2], tmp_path)
    assert asked == [3600, 2000, 0]


def test_what_was_unpacked_takes_no_more_space(site, tmp_path, monkeypatch):
    content = zipped(FILES)
    item = item_of(site.put("/a", content), content, path="data.zip", unpack="y")
    fetch(item, tmp_path)
    asked = []
    monkeypatch.setattr(
        fetching, "require_space", lambda folder, number, what: asked.append(number)
    )
    require_space_for([item], tmp_path)
    require_space_for([item._replace(unpack="z")], tmp_path)
    assert asked == [0, 2 * len(content)]


def test_a_part_that_is_no_file_is_refused(site, tmp_path):
    (tmp_path / "sub/data.bin.part").mkdir(parents=True)
    with pytest.raises(OSError, match="is a folder"):
        fetch(item_of(site.put("/a", CONTENT)), tmp_path)


@pytest.mark.parametrize("said", [b"", b"{", b'{"url": 1}', b"[" * 1000])
def test_a_damaged_note_of_the_server_is_nothing(site, tmp_path, said):
    item = item_of(site.put("/a", CONTENT, '"1"'), sha256=None)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/data.bin.part").write_bytes(b"x" * 1000)
    (tmp_path / "sub/data.bin.part.said").write_bytes(said)
    fetch(item, tmp_path)
    assert (tmp_path / "sub/data.bin").read_bytes() == CONTENT


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files, mode="w"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


FILES = {"VOC/a/1.jpg": b"one", "VOC/b/2.jpg": b"two" * 1000}


@pytest.mark.parametrize(
    ("suffix", "content"),
    [(".zip", zipped(FILES)), (".tar", tarred(FILES)), (".tar.gz", tarred(FILES, "w:gz")),
     (".tgz", tarred(FILES, "w:gz"))],
)  # fmt: skip
def test_an_archive_is_unpacked_and_not_fetched_again(site, tmp_path, suffix, content):
    item = item_of(site.put("/a", content), content, path=f"x/data{suffix}", unpack="y")
    assert fetch(item, tmp_path) == f"data{suffix}: fetched, 2 files unpacked"
    assert {
        path.relative_to(tmp_path / "y").as_posix(): path.read_bytes()
        for path in (tmp_path / "y").rglob("*")
        if path.is_file()
    } == FILES
    assert files_in(tmp_path / "x") == [f"data{suffix}.unpacked"]
    assert fetch(item, tmp_path) == f"data{suffix}: unpacked already"
    other = item._replace(sha256=sha256(b"another version"))
    with pytest.raises(UserError, match="its SHA-256 is"):
        fetch(other, tmp_path)
    assert len(site.asked) == 2


@pytest.mark.parametrize("folder", ["y", "y/z", "x"])  # "x": the note lies in it too
@pytest.mark.parametrize("files", [FILES, {"1.jpg": b"one"}])
def test_an_archive_whose_files_are_gone_is_fetched_again(site, tmp_path, folder, files):
    content = zipped(files)
    item = item_of(site.put("/a", content), content, path="x/data.zip", unpack=folder)
    fetch(item, tmp_path)
    for path in (tmp_path / folder).rglob("*.jpg"):
        path.unlink()
    unpacked = f"data.zip: fetched, {len(files)} file{'s' * (len(files) > 1)} unpacked"
    assert fetch(item, tmp_path) == unpacked
    if folder != "x":
        shutil.rmtree(tmp_path / folder)
        assert fetch(item, tmp_path) == unpacked
    assert {path.read_bytes() for path in tmp_path.rglob("*.jpg")} == set(files.values())
    assert fetch(item, tmp_path) == "data.zip: unpacked already"


def test_an_archive_that_lost_some_files_is_not_fetched_again(site, tmp_path):
    """People remove images that they do not want."""
    content = zipped({"a/1": b"1", "a/2": b"2"})
    item = item_of(site.put("/a", content), content, path="data.zip", unpack="y")
    fetch(item, tmp_path)
    (tmp_path / "y/a/1").unlink()
    assert fetch(item, tmp_path) == "data.zip: unpacked already"


def test_an_archive_is_unpacked_again_where_the_list_says_now(site, tmp_path):
    content = zipped(FILES)
    item = item_of(site.put("/a", content), content, path="data.zip", unpack="y")
    fetch(item, tmp_path)
    fetch(item._replace(unpack="z"), tmp_path)
    assert files_in(tmp_path / "z") == ["1.jpg", "2.jpg"]


def test_two_archives_meet_in_one_folder(site, tmp_path):
    first, second = zipped({"V/a/1": b"1", "V/note": b"n"}), tarred({"V/a/2": b"2", "V/note": b"n"})
    for name, content in (("1.zip", first), ("2.tar", second)):
        fetch(item_of(site.put(f"/{name}", content), content, path=name, unpack="y"), tmp_path)
    assert files_in(tmp_path / "y") == ["1", "2", "note"]


@pytest.mark.parametrize("changes", [{}, {"sha256": None}])
def test_an_archive_that_was_there_is_unpacked_and_stays(site, tmp_path, changes):
    content = zipped(FILES)
    (tmp_path / "data.zip").write_bytes(content)
    (tmp_path / "y/.data.zip.unpacking/half").mkdir(parents=True)  # left by one that was killed
    (tmp_path / "y/VOC/a").mkdir(parents=True)
    (tmp_path / "y/VOC/a/1.jpg").write_bytes(b"one")
    item = item_of(site.put("/a", content), content, path="data.zip", unpack="y", **changes)
    assert fetch(item, tmp_path).startswith("data.zip: there already, 2 files unpacked")
    assert files_in(tmp_path) == ["1.jpg", "2.jpg", "data.zip", "data.zip.unpacked"]
    assert (tmp_path / "data.zip").read_bytes() == content
    assert site.asked == []


@pytest.mark.parametrize("step", ["unpack", "atomic_text_file"])
def test_a_fetched_archive_goes_though_the_first_command_was_ended(site, tmp_path, step):
    content = zipped(FILES)
    item = item_of(site.put("/a", content), content, path="data.zip", unpack="y")

    def ended(*arguments):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetching, step, ended)
        with pytest.raises(KeyboardInterrupt):
            fetch(item, tmp_path)
    assert files_in(tmp_path)[0] == ".data.zip"
    assert fetch(item, tmp_path) == "data.zip: there already, 2 files unpacked"
    assert files_in(tmp_path) == ["1.jpg", "2.jpg", "data.zip.unpacked"]
    (tmp_path / ".data.zip").write_bytes(content)  # as if ended at the last moment
    assert fetch(item, tmp_path) == "data.zip: unpacked already"
    assert files_in(tmp_path) == ["1.jpg", "2.jpg", "data.zip.unpacked"]
    assert site.asked == [("/a", None)]


def test_one_process_fetches_into_a_folder(tmp_path):
    another = pytest.raises(UserError, match="another process fetches into it")
    with locked(tmp_path), another, locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
