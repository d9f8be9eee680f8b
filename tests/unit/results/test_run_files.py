"""The folder of results: names, order, and what is left when something fails."""

import contextlib
import csv
import dataclasses
import json
import resource
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.unit.results.made import CLASS_NAMES, make_result
from utils.cli.detect_config import DetectConfig
from utils.errors import UserError
from utils.media.video_file import VideoFile
from utils.results import drawn_videos
from utils.results.run_files import RunFiles

PERSON, CAT = (10, 10, 30, 30, 0.5, 0), (5, 5, 20, 20, 0.25, 2)
ALL = {"save_txt": True, "save_csv": True, "save_json": True, "save_crop": True}


def configure(**flags: object) -> DetectConfig:
    return DetectConfig(weights=("w",), **flags)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def write(folder: Path, *results, **flags: object) -> list[str]:
    """Write results, one after another; return the files that there are."""
    with RunFiles(folder, configure(**flags), CLASS_NAMES) as files:
        for result in results:
            files.add(result)
    return files_in(folder)


class StubWriter:
    """Notes what is written into videos."""

    made: list["StubWriter"]

    def __init__(self, path, size, rate):
        self.path, self.size, self.rate = path, size, rate
        self.seconds: list[float] = []
        self.is_open = True
        StubWriter.made.append(self)

    def write(self, image, seconds):
        assert self.is_open and image.shape == (*self.size, 3)
        self.seconds.append(seconds)

    def close(self):
        self.is_open = False


@pytest.fixture
def videos(monkeypatch):
    monkeypatch.setattr(StubWriter, "made", [], raising=False)
    monkeypatch.setattr(drawn_videos, "VideoWriter", StubWriter)
    return StubWriter.made


def test_all_flags_give_the_public_layout(tmp_path):
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


def test_without_flags_there_are_drawings_and_with_nosave_nothing(tmp_path):
    result = make_result(Path("a.jpg"), PERSON)
    assert write(tmp_path, result, nosave=True) == []
    assert write(tmp_path, result) == ["a.jpg"]


def test_drawings_follow_the_flags(tmp_path):
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


def test_scores_are_in_the_labels_where_asked_for(tmp_path):
    write(tmp_path, make_result(Path("a.jpg"), PERSON), save_txt=True, save_conf=True)
    assert (tmp_path / "labels/a.txt").read_text() == "0 0.333333 0.5 0.333333 0.5 0.5\n"


def test_labels_of_an_earlier_run_do_not_stay_where_nothing_is_found(tmp_path):
    write(tmp_path, make_result(Path("a.jpg"), PERSON), save_txt=True)
    assert "labels/a.txt" not in write(tmp_path, make_result(Path("a.jpg")), save_txt=True)


def test_crops_of_an_earlier_run_stay(tmp_path):
    write(tmp_path, make_result(Path("a.jpg"), PERSON), save_crop=True, nosave=True)
    found = write(tmp_path, make_result(Path("a.jpg"), PERSON), save_crop=True, nosave=True)
    assert found == ["crops/person/a.jpg", "crops/person/a2.jpg"]


def test_crops_of_images_called_like_numbered_crops_do_not_replace_each_other(tmp_path):
    results = [make_result(Path(f"{name}.jpg"), PERSON, PERSON) for name in ("a", "a2")]
    found = write(tmp_path, *results, save_crop=True, nosave=True)
    assert found == [f"crops/person/{name}.jpg" for name in ("a", "a2", "a22", "a23")]


def test_each_class_has_a_safe_folder_of_its_own(tmp_path):
    names = ("../up", "a/b", "a_b", "人", "", "\x1b[31m")
    rows = [(10, 10, 30, 30, 0.5, index) for index in range(len(names))]
    (tmp_path / "run").mkdir()
    with RunFiles(tmp_path / "run", configure(save_crop=True, nosave=True), names) as files:
        files.add(make_result(Path("a.jpg"), *rows, class_names=names))
    folders = ["_up", "_[31m", "a_b", "a_b-2", "class", "人"]
    assert files_in(tmp_path) == sorted(f"run/crops/{folder}/a.jpg" for folder in folders)


def test_sources_of_one_name_replace_nothing_of_each_other(tmp_path):
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


def test_frames_of_a_video_go_into_one_video_and_labels_count_from_one(tmp_path, videos):
    frames = [make_result(Path("clip.avi"), PERSON, number=number) for number in (0, 3, 6)]
    with RunFiles(tmp_path, configure(**ALL), CLASS_NAMES) as files:
        for frame in frames:
            files.add(frame, files.reserve(frame.frame, Fraction(8, 3)))
    (video,) = videos
    assert (video.path, video.rate) == (tmp_path / "clip.mp4", Fraction(8, 3))
    assert (video.seconds, video.is_open) == ([0, 0.375, 0.75], False)
    labels = [f"labels/clip_{number}.txt" for number in (1, 4, 7)]
    crops = [f"crops/person/clip{number}.jpg" for number in ("", 2, 3)]
    assert files_in(tmp_path) == [*crops, "detections.json", *labels, "predictions.csv"]
    assert (tmp_path / "predictions.csv").read_text() == "clip.avi,person,0.50\n" * 3
    records = json.loads((tmp_path / "detections.json").read_text())["images"]
    found = [(record["name"], record["frame"], record["seconds"]) for record in records]
    assert found == [("clip_1", 0, 0.0), ("clip_4", 3, 0.375), ("clip_7", 6, 0.75)]


def test_a_video_is_finished_when_the_next_begins_and_cameras_when_all_is_done(tmp_path, videos):
    with RunFiles(tmp_path, configure(), CLASS_NAMES) as files:
        for source, number in (
            (Path("x/a.mp4"), 0), ("0", 0), ("rtsp://u:p@cam/live", 0), (Path("x/a.mp4"), 1),
            ("0", 1), (Path("y/a.mp4"), 0), (Path("y/a.mp4"), 0),
        ):  # fmt: skip
            files.add(make_result(source, number=number))
        assert [video.is_open for video in videos] == [False, True, True, False, True]
    names = [video.path.name for video in videos]
    assert names == ["a.mp4", "0.mp4", "cam_live.mp4", "a-2.mp4", "a-3.mp4"]
    assert [len(video.seconds) for video in videos] == [2, 2, 1, 1, 1]
    assert not any(video.is_open for video in videos)


def test_threads_in_any_order_leave_the_files_of_one_thread(tmp_path):
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
            list(pool.map(files.add, results[::-1], places[::-1]))
    assert files_in(many) == files_in(one)
    for name in files_in(one):
        assert (many / name).read_bytes() == (one / name).read_bytes()


def test_rows_whose_turn_never_came_are_written_at_the_end(tmp_path):
    results = [make_result(Path(f"{name}.jpg"), PERSON) for name in "abcd"]
    with RunFiles(tmp_path, configure(**ALL), CLASS_NAMES) as files:
        places = [files.reserve(result.frame) for result in results]
        for index in (0, 3, 2):
            files.add(results[index], places[index])
    rows = (tmp_path / "predictions.csv").read_text().splitlines()
    assert [row[0] for row in rows] == ["a", "c", "d"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_was_added_before_an_interrupt_is_there_and_whole(tmp_path, error):
    with (
        pytest.raises(error),
        RunFiles(tmp_path, configure(**ALL), CLASS_NAMES) as files,
    ):
        files.add(make_result(Path("a.jpg"), PERSON))
        raise error
    assert len(json.loads((tmp_path / "detections.json").read_text())["images"]) == 1
    assert (tmp_path / "predictions.csv").read_text() == "a.jpg,person,0.50\n"
    assert not [name for name in files_in(tmp_path) if name.endswith(".tmp")]


def test_an_interrupt_at_any_step_leaves_valid_json(tmp_path):
    """An interrupt may come wherever Python runs: here at each line of the writing in turn."""
    results = [make_result(Path(f"{name}.jpg"), PERSON) for name in "ab"]
    step = 0
    while run_interrupted_at(step, tmp_path, results):
        images = json.loads((tmp_path / "detections.json").read_text())["images"]
        assert [record["name"] for record in images] == ["a", "b"][: len(images)]
        step += 1
    assert step > 20


def run_interrupted_at(step, folder, results) -> bool:
    """Add results; return whether there were so many steps. What waits is written nevertheless."""
    steps = iter(range(step))

    def interrupt(frame, event, argument):
        name = Path(frame.f_code.co_filename).name
        if name not in ("detections_file.py", "growing.py"):
            return None
        if event == "line" and next(steps, None) is None:
            sys.settrace(None)
            raise KeyboardInterrupt
        return interrupt

    try:
        with RunFiles(folder, configure(save_json=True, nosave=True), CLASS_NAMES) as files:
            places = [files.reserve(result.frame) for result in results]
            sys.settrace(interrupt)
            for result, place in zip(results, places, strict=True):
                files.add(result, place)
            sys.settrace(None)
    except KeyboardInterrupt:
        return True
    return False


def test_an_empty_run_leaves_valid_files(tmp_path):
    assert write(tmp_path, **ALL) == ["detections.json", "predictions.csv"]
    document = json.loads((tmp_path / "detections.json").read_text())
    assert document == {"class_names": list(CLASS_NAMES), "images": []}
    assert (tmp_path / "predictions.csv").read_text() == ""


def test_the_json_file_has_all_of_a_detection(tmp_path):
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


def test_json_shows_characters_of_all_languages_and_escapes_what_steers_a_terminal(tmp_path):
    name = "人\x9b\u202e\U000e0001"
    write(tmp_path, make_result(Path(f"{name}.jpg")), nosave=True, save_json=True)
    text = (tmp_path / "detections.json").read_text(encoding="utf-8")
    assert '"name": "人\\u009b\\u202e\\udb40\\udc01"' in text
    assert json.loads(text)["images"][0]["name"] == name


def test_a_byte_that_is_no_text_is_spelt_out_in_json(tmp_path):
    write(tmp_path, make_result(Path("a\udce9.jpg")), nosave=True, save_json=True)
    (record,) = json.loads((tmp_path / "detections.json").read_text("utf-8"))["images"]
    assert (record["name"], record["source"]) == ("a\\udce9", "a\\udce9.jpg")


@pytest.mark.parametrize("stem", ["x" * 251, "人" * 83, "a\udce9", "a\nb"])
def test_odd_names_of_sources_give_files(tmp_path, stem):
    found = write(tmp_path, make_result(Path(f"{stem}.jpg"), PERSON), **ALL)
    assert len(found) == 5
    assert len(json.loads((tmp_path / "detections.json").read_text())["images"]) == 1
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 1


def test_a_source_is_never_replaced_by_its_drawing(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(b"mine")
    with pytest.raises(UserError, match="choose another --name"):
        write(tmp_path, make_result(path, PERSON))
    assert path.read_bytes() == b"mine"
    (tmp_path / "link.jpg").symlink_to(path)
    with pytest.raises(UserError, match="choose another --name"):
        write(tmp_path, make_result(tmp_path / "link.jpg", PERSON))
    assert write(tmp_path, make_result(path, PERSON), nosave=True) == ["a.jpg", "link.jpg"]


def test_an_image_of_one_pixel_and_boxes_at_its_border_are_written(tmp_path):
    boxes = [(0, 0, 1, 1, 0.5, 0), (1, 1, 1, 1, 0.5, 2), (0, 0, 0, 0, 0.5, 1)]
    found = write(tmp_path, make_result(Path("a.png"), *boxes, size=(1, 1)), **ALL)
    assert [name for name in found if name.startswith("crops/")] == [
        "crops/cat/a.jpg", "crops/person/a.jpg", "crops/traffic light/a.jpg",
    ]  # fmt: skip


def test_a_crop_too_long_for_its_kind_is_written_in_another(tmp_path):
    result = make_result(Path("a.png"), (0, 0, 70_000, 1, 0.5, 0), size=(1, 70_000))
    found = write(tmp_path, result, save_crop=True, nosave=True)
    assert found == ["crops/person/a.png"]


@contextlib.contextmanager
def full_disk(limit):
    """Let this process write files of so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


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
def test_a_full_disk_is_one_error_that_names_the_file(tmp_path, flags, named):
    result = make_result(Path("a.png"), *[PERSON] * 500, size=(400, 400))
    with full_disk(300), pytest.raises(OSError) as caught:
        write(tmp_path, result, **flags)
    assert caught.value.filename == str(tmp_path / named)
    assert not [name for name in files_in(tmp_path) if not name.startswith(("pred", "det"))]


def test_a_disk_that_fills_up_leaves_all_that_was_whole_before(tmp_path):
    few, many = make_result(Path("a.png"), PERSON), make_result(Path("b.png"), *[PERSON] * 99)
    flags = {"nosave": True, "save_csv": True, "save_json": True}
    for kept in ({"save_csv": False}, {"save_json": False}):
        with full_disk(500), pytest.raises(OSError):
            write(tmp_path, few, many, **{**flags, **kept})
    assert (tmp_path / "predictions.csv").read_text() == "a.png,person,0.50\n"
    images = json.loads((tmp_path / "detections.json").read_text())["images"]
    assert [record["name"] for record in images] == ["a"]


def test_the_first_failure_is_told_and_not_those_that_follow(tmp_path):
    result = make_result(Path("a.png"), *[PERSON] * 500, size=(400, 400))
    with full_disk(300), pytest.raises(OSError) as caught:
        write(tmp_path, result, **ALL)
    assert caught.value.filename == str(tmp_path / "a.png")


def test_a_file_that_cannot_be_finished_after_an_interrupt_is_told(tmp_path):
    (tmp_path / "predictions.csv").mkdir()
    with (
        pytest.raises(IsADirectoryError, match="predictions.csv"),
        RunFiles(tmp_path, configure(save_csv=True), CLASS_NAMES),
    ):
        raise KeyboardInterrupt


def test_a_folder_that_is_in_the_way_is_named(tmp_path):
    (tmp_path / "predictions.csv").mkdir()
    with pytest.raises(IsADirectoryError, match="predictions.csv"):
        write(tmp_path, save_csv=True)


def test_closing_again_does_nothing(tmp_path):
    files = RunFiles(tmp_path, configure(**ALL), CLASS_NAMES)
    files.close()
    files.close()
    assert files_in(tmp_path) == ["detections.json", "predictions.csv"]
    assert threading.active_count() < 50


def test_a_box_that_is_not_finite_is_in_no_file(tmp_path):
    """Half precision can give one."""
    broken = [(float("nan"), 0, 9, 9, 0.9, 1), (0, 0, float("inf"), 9, 0.8, 1)]
    ids = np.array([1, 2, 3])
    result = make_result(Path("a.png"), *broken, PERSON, track_ids=ids)
    found = write(tmp_path, result, **ALL)
    assert found == ["a.png", "crops/person/a.jpg", "detections.json", "labels/a.txt",
                     "predictions.csv"]  # fmt: skip
    assert (tmp_path / "predictions.csv").read_text() == "a.png,person,0.50,3\n"
    assert (tmp_path / "labels/a.txt").read_text() == "0 0.333333 0.5 0.333333 0.5 3\n"
    (record,) = json.loads((tmp_path / "detections.json").read_text())["images"]
    assert [found["track_id"] for found in record["detections"]] == [3]


def test_a_written_video_has_the_frames_and_times_of_its_source(tmp_path):
    box = (20, 20, 140, 100, 0.5, 0)
    frames = [
        make_result(Path("clip.avi"), box, size=(120, 160), number=number)
        for number in (0, 1, 2, 6)
    ]
    with RunFiles(tmp_path, configure(line_thickness=8), CLASS_NAMES) as files:
        for result in frames:
            files.add(result, files.reserve(result.frame, Fraction(8)))
    assert files_in(tmp_path) == ["clip.mp4"]
    found = list(VideoFile(tmp_path / "clip.mp4", 10**6).frames())
    assert [frame.seconds for frame in found] == [0, 0.125, 0.25, 0.75]
    for frame, result in zip(found, frames, strict=True):
        plain, drawn = result.image.astype(int), result.plot(8).astype(int)
        # H.264 halves the resolution of colours; measured, a sixth of what the drawing changes.
        assert np.abs(frame.image - drawn).mean() < np.abs(plain - drawn).mean() / 2


def test_a_disk_that_a_video_fills_is_one_error_that_names_the_video(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    frames = [make_result(Path("clip.avi"), PERSON, number=number) for number in range(100)]
    frames = [
        dataclasses.replace(result, frame=result.frame._replace(image=np.roll(noise, number)))
        for number, result in enumerate(frames)
    ]
    with full_disk(30_000), pytest.raises(OSError, match="File too large") as caught:
        write_in_a_thread(tmp_path, frames)
    assert caught.value.filename == str(tmp_path / "clip.mp4")
    assert files_in(tmp_path) == []


def write_in_a_thread(folder: Path, results) -> None:
    """Write results as a pipeline does: those that wait follow one that fails."""
    with RunFiles(folder, configure(), CLASS_NAMES) as files:
        with ThreadPoolExecutor(1) as pool:
            futures = [pool.submit(files.add, result) for result in results]
        for future in futures:
            future.result()
