"""What --source means."""

import logging
import os
from pathlib import Path

import pytest

from duet.utils.detect.media.finding import find_sources
from duet.utils.errors import UserError

PIXELS = 10**6


def names(argument: object) -> list[str]:
    """The names of the sources, without their folder."""
    return [Path(source.name).name for source in find_sources(str(argument), PIXELS)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.JPG", "a10.png", "a9.png", "a2.webp", "clip.mp4", "notes.md", "data"):
        (tmp_path / name).touch()
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "z.jpg").touch()
    return tmp_path


def test_folder_is_read_in_natural_order_and_others_counted(folder, caplog):
    with caplog.at_level(logging.INFO):
        assert names(folder) == ["a2.webp", "a9.png", "a10.png", "b.JPG", "clip.mp4"]
    assert "3 other names ignored" in caplog.text  # notes.md, data, inner


def test_glob_pattern_selects_files(folder):
    assert names(folder / "a*.png") == ["a9.png", "a10.png"]
    assert names(folder / "*.[jJ]*") == ["b.JPG"]
    assert names(folder / "**" / "*.jpg") == ["z.jpg"]
    assert sorted(names(folder / "**")) == sorted([*names(folder), "z.jpg"])


def test_literal_folder_wins_over_a_glob_pattern(folder, tmp_path):
    (inside := tmp_path / "cat[1]" / "b*").mkdir(parents=True)
    (inside / "z.jpg").touch()
    (tmp_path / "cat1" / "bc").mkdir(parents=True)
    (tmp_path / "cat1" / "bc" / "x.jpg").touch()
    assert names(inside / "*.jpg") == ["z.jpg"]
    assert names(tmp_path / "cat[1-2]" / "*" / "*.jpg") == ["x.jpg"]


def test_glob_does_not_follow_links_upward(folder):
    for name in ("up", "on"):
        (folder / "inner" / name).symlink_to(folder)  # each pass would double the paths
    assert names(folder / "**" / "z.jpg") == ["z.jpg"]


def test_list_names_files_relative_to_its_folder(folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "o.jpg"
    text = f"\ufeffinner/z.jpg\r\n\n  a9.png \n{other}\nclip.mp4\nREADME\nabsent.png\n./a9.png\n"
    (folder / "list.txt").write_text(text, encoding="utf-8")
    sources = find_sources(str(folder / "list.txt"), PIXELS)
    assert [source.name for source in sources] == [
        folder / "inner/z.jpg", folder / "a9.png", other, folder / "clip.mp4",
        folder / "absent.png",
    ]  # fmt: skip


def test_list_may_use_the_working_folder_and_backslashes(folder, tmp_path_factory, monkeypatch):
    path = tmp_path_factory.mktemp("lists") / "a" / "list.txt"
    path.parent.mkdir()
    path.write_text("gone.png\ninner\\z.jpg\na9.png\n")
    monkeypatch.chdir(folder)
    assert names(path) == ["gone.png", "z.jpg", "a9.png"]


def test_macos_companion_files_are_ignored(folder, caplog):
    (folder / "._b.JPG").touch()
    (folder / "__MACOSX").mkdir()
    (folder / "__MACOSX" / "a.png").touch()
    with caplog.at_level(logging.INFO):
        assert names(folder) == ["a2.webp", "a9.png", "a10.png", "b.JPG", "clip.mp4"]
        assert names(folder / "**/*.png") == ["a9.png", "a10.png"]
    assert "5 other names ignored" in caplog.text


def test_stream_list_names_urls_and_cameras(tmp_path):
    path = tmp_path / "all.streams"
    path.write_text("rtsp://user:word@host:1/x\n\nhttp://h/a@b\n0\n")
    sources = find_sources(str(path), PIXELS)
    assert [source.kind for source in sources] == ["live"] * 3
    assert [source.name for source in sources] == ["rtsp://host:1/x", "http://h/a@b", "camera 0"]
    path.write_text("a.mp4\n")
    with pytest.raises(UserError, match="'a.mp4'.*rtsp"):
        find_sources(str(path), PIXELS)


@pytest.mark.parametrize(
    "argument", ["0", "12", "rtsp://h/x", "RTMP://h/x", "https://h/x", "tcp://h:1", "udp://@:1"]
)
def test_camera_and_url_are_live_sources(argument):
    (source,) = find_sources(argument, PIXELS)
    assert (source.kind, source.num_frames, source.rate) == ("live", None, None)


def test_a_long_url_is_cut_in_its_message(tmp_path):
    (tmp_path / "a.streams").write_text("x" * 9000 + "://host\n")
    with pytest.raises(UserError, match="xxx is not supported; accepted") as raised:
        find_sources(str(tmp_path / "a.streams"), PIXELS)
    assert len(str(raised.value)) < 1000


REFUSED = {
    "absent.jpg": "absent.jpg: no such file or folder$",
    "": "no such file or folder",
    "*.tiff": "no images or videos; accepted: .avif .*.webp for images, .3gp .*.wmv for videos$",
    "outer": "no images or videos; 'outer/\\*\\*/\\*' also looks into its folders; accepted",
    "outer/train": "no images or videos; accepted",
    "notes.pdf": "no images or videos; accepted",
    "lost.jpg": "no such file or folder$",
    "empty.txt": "the list is empty; write one path or URL per line$",
    "holes.txt": "null byte",
    "fifo.txt": "is a FIFO",
    "**x/*.jpg": "accepted",
    "ftp://host/a.mp4": "ftp is not supported; accepted",
    "screen 1": "no such file or folder",
    "a\0b.jpg": "no such file",
}


@pytest.mark.parametrize("argument", REFUSED)
def test_unknown_source_error_lists_the_accepted_ones(argument, folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "outer/train").mkdir(parents=True)
    (folder / "empty.txt").write_text("\n \n")
    (folder / "holes.txt").write_bytes(b"a\0b")
    os.mkfifo(folder / "fifo.txt")
    (folder / "notes.pdf").touch()
    (folder / "lost.jpg").symlink_to("nowhere.jpg")
    with pytest.raises(UserError, match=REFUSED[argument]) as raised:
        find_sources(argument, PIXELS)
    assert str(raised.value).startswith(f"--source {argument}")
