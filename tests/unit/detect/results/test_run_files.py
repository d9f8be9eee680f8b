"""The folder of results: file names, order, and what a failure leaves."""

import csv
import dataclasses
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest

from duet.utils.detect.config import DetectConfig
from duet.utils.detect.media.video import VideoFile
from duet.utils.detect.results.result import Result
from duet.utils.detect.results.run_files import RunFiles, name_of_source
from duet.utils.errors import UserError
from duet.utils.files.run_folder import Names
from tests.unit.detect.made import CLASS_NAMES, make_detections, make_result
from tests.unit.files.test_atomic import full_disk

PERSON, CAT = (10, 10, 30, 30, 0.5, 0), (5, 5, 20, 20, 0.25, 2)
ALL = {"save_txt": True, "save_csv": True, "save_json": True, "save_crop": True}


def configure(**flags: object) -> DetectConfig:
    return DetectConfig(weights=("w",), **flags)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def write(folder: Path, *results, **flags: object) -> list[str]:
    """Write results one by one; return the files in the folder."""
    with RunFiles(folder, configure(**flags), CLASS_NAMES) as files:
        for result in results:
            files.add(result)
    return files_in(folder)


def test_all_flags_give_the_public_file_layout(tmp_path):
    result = make_result(Path("x/a.png"), PERSON, CAT, PERSON)
    found = write(tmp_path, result, make_result(Path("x/b.jpg")), **ALL)
    crops = ["crops/cat/a.jpg", "crops/person/a.jpg", "crops/person/a2.jpg"]
    tables = ["detections.json", "labels/a.txt", "predictions.csv"]
    assert found == ["a.png", "b.jpg", *crops, *tables]
    assert (tmp_path / "labels/a.txt").read_text().splitlines() == [
        "0 0.333333 0.5 0.333333 0.5",
        "2 0.208333 0.3125 0.25 0.375",
        "0 0.333333 0.5 0.333333 0.5",
    ]
    table = (tmp_path / "predictions.csv").read_text()
    assert table == "a.png,person,0.50\na.png,cat,0.25\na.png,person,0.50\n"


def test_no_image_waits_for_the_disk(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", synced.append)
    write(tmp_path, *(make_result(Path(f"{name}.png"), PERSON) for name in "abc"), **ALL)
    assert len(synced) == 2  # detections.json and predictions.csv


def test_heat_maps_are_saved_in_their_own_folder(tmp_path):
    result = make_result(Path("x/a.png"), PERSON)
    heat = np.zeros(result.size, np.float32)
    heat[0] = 1
    found = write(tmp_path, dataclasses.replace(result, heatmap=heat), visualize=-1, nosave=True)
    assert found == ["heatmaps/a.jpg"]
    drawn = cv2.imread(str(tmp_path / "heatmaps/a.jpg"))
    assert drawn.shape == result.image.shape
    assert abs(drawn[0].astype(int).mean(0) - drawn[-1].astype(int).mean(0)).max() > 20


def test_heat_map_too_long_for_jpeg_is_saved_as_png(tmp_path):
    result = make_result("long", size=(10, 65_501))
    heat = np.zeros(result.size, np.float32)
    found = write(tmp_path, dataclasses.replace(result, heatmap=heat), visualize=-1)
    assert found == ["heatmaps/long.png", "long.png"]


def test_drawing_flags_change_the_drawing(tmp_path):
    result = make_result(Path("a.png"), PERSON)
    for name, flags, drawn in (
        ("plain", {}, result.plot()),
        ("thick", {"line_thickness": 5}, result.plot(5)),
        ("bare", {"hide_labels": True}, result.plot(labels=False)),
        ("no scores", {"hide_conf": True}, result.plot(scores=False)),
    ):
        (tmp_path / name).mkdir()
        write(tmp_path / name, result, **flags)
        found = cv2.imread(str(tmp_path / name / "a.png"))[:, :, ::-1]
        np.testing.assert_array_equal(found, drawn)


def test_each_class_gets_its_own_safe_folder_name(tmp_path):
    folders = {
        "../up": "_up", "a/b\\c:d": "a_b_c_d", "a_b_c_d": "a_b_c_d-2", "人": "人", "": "class",
        "..": "class-2", " . ": "class-3", "\x1b[31mred\n\u202e": "_[31mred__", "\ud800": "_",
        "con": "_con", "Com1.5": "_Com1.5", "console": "console", "traffic light": "traffic light",
    }  # fmt: skip
    names = tuple(folders)
    rows = [(10, 10, 30, 30, 0.5, index) for index in range(len(names))]
    (tmp_path / "run").mkdir()
    with RunFiles(tmp_path / "run", configure(save_crop=True, nosave=True), names) as files:
        files.add(make_result(Path("a.jpg"), *rows, class_names=names))
    assert files_in(tmp_path) == sorted(f"run/crops/{x}/a.jpg" for x in folders.values())


def test_sources_of_equal_name_do_not_overwrite_each_other(tmp_path):
    paths = ["x/a.jpg", "y/a.jpg", "x/a.png", "x/b.gif", "x/b.jpg"]
    results = [
        make_result(Path(path), (10, 10, 30, 30, 0.5, index % 3))
        for index, path in enumerate(paths)
    ]
    found = write(tmp_path, *results, save_txt=True, save_csv=True, save_json=True)
    assert found == [
        "a-2.jpg", "a-3.png", "a.jpg", "b-2.jpg", "b.jpg", "detections.json", "labels/a-2.txt",
        "labels/a-3.txt", "labels/a.txt", "labels/b-2.txt", "labels/b.txt", "predictions.csv",
    ]  # fmt: skip
    labels = ("a", "a-2", "a-3", "b", "b-2")
    classes = [(tmp_path / f"labels/{name}.txt").read_text()[0] for name in labels]
    assert classes == ["0", "1", "2", "0", "1"]
    with open(tmp_path / "predictions.csv", encoding="utf-8") as file:
        rows = [row[:2] for row in csv.reader(file)]
    assert rows[:3] == [["a.jpg", "person"], ["a-2.jpg", "traffic light"], ["a-3.png", "cat"]]
    records = json.loads((tmp_path / "detections.json").read_text())["images"]
    assert [(record["name"], record["source"]) for record in records] == list(
        zip(labels, paths, strict=True)
    )


def test_thread_order_does_not_change_the_files(tmp_path):
    results = [
        make_result(Path(f"{number % 3}/{number % 7}.png"), *[PERSON] * (number % 4))
        for number in range(40)
    ]
    one, many = tmp_path / "one", tmp_path / "many"
    one.mkdir(), many.mkdir()
    write(one, *results, **ALL)
    with RunFiles(many, configure(**ALL), CLASS_NAMES) as files:
        places = [files.reserve(result.frame) for result in results]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(files.write, results[::-1], places[::-1]))
        for result, place in zip(results, places, strict=True):
            files.append(result, place)
    assert files_in(many) == files_in(one)
    for name in files_in(one):
        assert (many / name).read_bytes() == (one / name).read_bytes()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_results_before_an_interrupt_are_complete(tmp_path, error):
    with pytest.raises(error), RunFiles(tmp_path, configure(**ALL), CLASS_NAMES) as files:
        files.add(make_result(Path("a.jpg"), PERSON))
        raise error
    assert len(json.loads((tmp_path / "detections.json").read_text())["images"]) == 1
    assert (tmp_path / "predictions.csv").read_text() == "a.jpg,person,0.50\n"
    assert not [name for name in files_in(tmp_path) if name.endswith(".tmp")]


def test_json_file_has_every_field_of_a_detection(tmp_path):
    ids = np.array([7])
    result = make_result(Path("x/\x1b人.jpg"), PERSON, track_ids=ids)
    write(tmp_path, result, nosave=True, save_json=True, save_csv=True, save_txt=True)
    text = (tmp_path / "detections.json").read_text(encoding="utf-8")
    assert text.replace("\n", "").isprintable()
    assert json.loads(text)["images"] == [
        {
            "name": "\x1b人", "source": "x/\x1b人.jpg", "frame": None, "seconds": None,
            "height": 40, "width": 60,
            "detections": [
                {"box_xyxy": [10, 10, 30, 30], "score": 0.5, "class_index": 0, "name": "person",
                 "track_id": 7}
            ],
        }
    ]  # fmt: skip
    assert (tmp_path / "predictions.csv").read_text() == "\\x1b人.jpg,person,0.50,7\n"
    assert (tmp_path / "labels/\x1b人.txt").read_text().endswith(" 7\n")


def test_drawing_never_replaces_its_source(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(b"mine")
    with pytest.raises(UserError, match="choose another --name"):
        write(tmp_path, make_result(path, PERSON))
    assert path.read_bytes() == b"mine"
    (tmp_path / "link.jpg").symlink_to(path)
    with pytest.raises(UserError, match="choose another --name"):
        write(tmp_path, make_result(tmp_path / "link.jpg", PERSON))
    assert write(tmp_path, make_result(path, PERSON), nosave=True) == ["a.jpg", "link.jpg"]


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({}, "a.png"),
        ({"nosave": True, "save_txt": True}, "labels/a.txt"),
        ({"nosave": True, "save_csv": True}, "predictions.csv"),
        ({"nosave": True, "save_json": True}, "detections.json"),
        ({"nosave": True, "save_crop": True}, "crops/person/a.jpg"),
    ],
)
def test_full_disk_is_one_error_naming_the_file(tmp_path, flags, named):
    result = make_result(Path("a.png"), *[PERSON] * 500, size=(400, 400))
    with full_disk(300), pytest.raises(OSError) as caught:
        write(tmp_path, result, **flags)
    assert caught.value.filename == str(tmp_path / named)
    assert files_in(tmp_path) == []


def test_non_finite_box_is_in_no_output():
    """Half precision can give one."""
    rows = (float("nan"), 0, 9, 9, 0.9, 1), (0, 0, float("inf"), 9, 0.8, 1), PERSON
    frame = make_result(Path("a.png")).frame
    result = Result(frame, make_detections(*rows), CLASS_NAMES, np.array([1, 2, 3]))
    assert result.table_lines("a.png") == "a.png,person,0.50,3\n"


BOX = (20, 20, 140, 100, 0.5, 0)


def frame_of(source: Path | str, number: int):
    return make_result(source, BOX, size=(120, 160), number=number)


def test_video_frames_share_one_video_and_count_labels(tmp_path):
    results = [frame_of(Path("clip.avi"), number) for number in (0, 3, 6)]
    with RunFiles(tmp_path, configure(line_thickness=8, **ALL), CLASS_NAMES) as files:
        for result in results:
            place = files.reserve(result.frame, Fraction(8, 3))
            files.write(result, place)
            files.append(result, place)
    found = list(VideoFile(tmp_path / "clip.mp4", 10**6).frames())
    assert [frame.seconds for frame in found] == [0, 0.375, 0.75]
    for frame, result in zip(found, results, strict=True):
        plain, drawn = result.image.astype(int), result.plot(8).astype(int)
        # H.264 halves the resolution of colours; measured, a sixth of what the drawing changes.
        assert np.abs(frame.image - drawn).mean() < np.abs(plain - drawn).mean() / 2
    labels = [f"labels/clip_{number}.txt" for number in (1, 4, 7)]
    crops = [f"crops/person/clip{number}.jpg" for number in ("", 2, 3)]
    tables = ["detections.json", *labels, "predictions.csv"]
    assert files_in(tmp_path) == ["clip.mp4", *crops, *tables]
    assert (tmp_path / "predictions.csv").read_text() == "clip.avi,person,0.50\n" * 3
    records = json.loads((tmp_path / "detections.json").read_text())["images"]
    found = [(record["name"], record["frame"], record["seconds"]) for record in records]
    assert found == [("clip_1", 0, 0.0), ("clip_4", 3, 0.375), ("clip_7", 6, 0.75)]


def test_video_is_closed_by_the_next_and_cameras_at_the_end(tmp_path):
    x, y, url = Path("x/a.mp4"), Path("y/a.mp4"), "rtsp://u:p@cam/live"
    with RunFiles(tmp_path, configure(), CLASS_NAMES) as files:
        for source, number in ((x, 0), (x, 1), (y, 0), ("0", 0), (url, 0), ("0", 1)):
            files.add(frame_of(source, number))
        finished = [name for name in files_in(tmp_path) if not name.startswith(".")]
        assert finished == ["a.mp4"]
    names = {"a.mp4": 2, "0.mp4": 2, "cam_live.mp4": 1, "a-2.mp4": 1}
    assert files_in(tmp_path) == sorted(names)
    for name, number in names.items():
        assert len(list(VideoFile(tmp_path / name, 10**6).frames())) == number


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
def test_source_name_drops_folders_and_secrets(source, name):
    assert name_of_source(source) == name


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("a a a-2 a b a-2", "a a-2 a-2-2 a-3 b a-2-3"),
        # Frames of a video called clip are clip_1, clip_2, ...
        ("clip.mp4 clip_7 other_7 other.mp4", "clip clip_7-2 other_7 other-2"),
        ("other_7 other.mp4 other-2_1 other clip_x", "other_7 other-2 other-2_1-2 other clip_x"),
    ],
)
def test_taken_name_gets_the_next_number(asked, given):
    assert " ".join(take_names(Names(), asked)) == given


def test_naming_thousands_of_videos_stays_linear():
    names, calls = Names(), Counter[str]()
    sys.setprofile(lambda frame, event, argument: calls.update([event]))
    try:
        found = [names.take(f"clip{number}", is_video=True) for number in range(1000)]
    finally:
        sys.setprofile(None)
    assert len(set(found)) == 1000 and calls["call"] < 20 * 1000


def take_names(names: Names, asked: str) -> list[str]:
    stems = [(name.removesuffix(".mp4"), name.endswith(".mp4")) for name in asked.split()]
    return [names.take(stem, is_video) for stem, is_video in stems]


def test_names_differing_in_case_clash_only_where_folded():
    assert take_names(Names(folds_case=True), "a A b_1 B.mp4") == ["a", "A-2", "b_1", "B-2"]
    assert take_names(Names(folds_case=False), "a A b_1 B.mp4") == ["a", "A", "b_1", "B"]
