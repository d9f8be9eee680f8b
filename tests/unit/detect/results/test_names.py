"""Names of result files: safe, short enough, and each given once."""

from pathlib import Path

import pytest

from duet.utils.detect.results.run_files import Names, name_of_source, safe_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("traffic light", "traffic light"),
        ("a/b\\c:d", "a_b_c_d"),
        ("..", "class"),
        (" . ", "class"),
        ("../../etc/passwd", "_.._etc_passwd"),
        ("\x1b[31mred\n\u202e", "_[31mred__"),
        ("\udce9\ud800", "__"),
    ],
)
def test_a_safe_name_is_one_folder(text, name):
    assert safe_name(text, otherwise="class") == name
    assert Path("folder", name).parent == Path("folder")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (Path("/data/a.b/img.1.jpg"), ("img.1", ".jpg")),
        (Path("/data/.jpg"), (".jpg", "")),
        (Path("/data/\udce9.PNG"), ("\udce9", ".PNG")),
        ("image0.jpg", ("image0", ".jpg")),
        ("rtsp://user:secret@10.0.0.5:554/live/1?token=t", ("10.0.0.5_554_live_1", "")),
        ("rtsp://", ("stream", "")),
        ("http://[broken/x", ("[broken_x", "")),
        ("rtsp://user:p@s#s?/w@cam/live", ("cam_live", "")),
    ],
)
def test_a_source_gives_its_name_without_folders_and_secrets(source, name):
    assert name_of_source(source) == name


def test_a_name_that_is_taken_gets_the_next_number():
    names = Names()
    given = [names.take(name) for name in ("a", "a", "a-2", "a", "b", "a-2")]
    assert given == ["a", "a-2", "a-2-2", "a-3", "b", "a-2-3"]


def test_an_image_called_like_a_frame_of_a_video_gets_another_name():
    names = Names()
    assert names.take("clip", is_video=True) == "clip"
    assert names.take("clip_7") == "clip_7-2"
    assert names.take("other_7") == "other_7"
    assert names.take("other", is_video=True) == "other-2"
    assert names.take("other-2_1") == "other-2_1-2"
    assert names.take("clip") == "clip-2"
    assert names.take("clip_x") == "clip_x"
