"""detect.py as a user runs it: its lines, exit codes, and the ways in which it ends early."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from fractions import Fraction
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest

import detect
from duet.utils.data.shapes.dataset import draw_dataset
from duet.utils.data.sources.dataset import BUILT_INS
from duet.utils.detect.config import parse_detect_flags
from duet.utils.detect.media.video import VideoFile, VideoWriter
from duet.utils.processes.exit_status import EXIT_FAILED, EXIT_INTERRUPTED
from duet.utils.processes.start import EXIT_TERMINATED
from duet.utils.project import PROJECT
from tests.environments import shared_path, wait_until
from tests.small import SMALL_SHAPES, noise, write_tiny_weights

CPU = ("--device", "cpu")
PERSON, CHAIR = 0, 56  # of COCO's 80 classes
WIDTH, HEIGHT, RATE, NUM_FRAMES = 256, 160, 25, 24  # of the drawn video
SECONDS = 60  # a limit against hanging
MANY = 3000  # images, or frames
HOSTILE = os.fsdecode(b"caf\xe9\x1b[31m.jpg")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_tiny_weights(tmp_path_factory.mktemp("weights"), trained_size=64)


@pytest.fixture
def images(tmp_path):
    """A folder with three images and two files that are none."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(3):
        write_image(folder / f"{number}.jpg", seed=number)
    (folder / HOSTILE).write_text("no image")
    os.mkfifo(folder / "pipe.jpg")
    return folder


def write_image(path, seed=0):
    encoded = cv2.imencode(".jpg", noise(48, 64, seed))[1].tobytes()
    path.write_bytes(encoded)
    return encoded


def many_images(folder, number):
    folder.mkdir()
    write_image(folder / "00000.jpg")
    for index in range(1, number):
        os.link(folder / "00000.jpg", folder / f"{index:05d}.jpg")
    return folder


def write_video(path, frames):
    with closing(VideoWriter(path, (48, 64), Fraction(30))) as video:
        for number in range(frames):
            video.write(noise(48, 64, number), number / 30)
    return path


def arguments(weights, source, project, *flags):
    return ["--weights", str(weights), "--source", str(source), "--project", str(project),
            *CPU, *map(str, flags)]  # fmt: skip


def run_here(monkeypatch, caplog, *given):
    """Run main in this process; return its lines of the log."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("sys.argv", ["detect.py", *arguments(*given)])
    detect.main()
    return caplog.messages


def drawn(folder):
    return sorted(path.name for path in folder.glob("*.jpg"))


def test_all_images_of_a_folder_are_drawn_and_reported(
    monkeypatch, caplog, capsys, weights, tmp_path
):
    folder = many_images(tmp_path / "in", 3)
    lines = run_here(monkeypatch, caplog, weights, folder, tmp_path / "runs")
    assert "images at 64 px, the training size" in lines
    assert any(f"weights: {weights}; source: {folder}, 3 images" in line for line in lines)
    assert [line.split(": ")[0] for line in lines if re.match(r"\d/", line)] == [
        f"{n + 1}/3 {folder}/0000{n}.jpg" for n in range(3)
    ]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("found: ")
    assert re.match(r"3 images in .* images/s, [0-9.]+ ms per image$", printed[1])
    assert printed[-1] == f"results in {tmp_path / 'runs' / 'exp'}"
    assert drawn(tmp_path / "runs" / "exp") == ["00000.jpg", "00001.jpg", "00002.jpg"]


def test_unreadable_sources_are_named_and_set_the_exit_code(weights, images, tmp_path):
    command = [sys.executable, "detect.py", *arguments(weights, images, tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (EXIT_FAILED, "")
    left_out = [line for line in done.stdout.splitlines() if ": left out: " in line]
    assert left_out[0].startswith(rf"{images}/caf\xe9\x1b[31m.jpg: left out: not an image")
    assert left_out[1].startswith(f"{images}/pipe.jpg: left out: is a FIFO")
    assert "left out or incomplete: 2 of 5 images, named above" in done.stdout
    assert drawn(tmp_path / "runs" / "exp") == ["0.jpg", "1.jpg", "2.jpg"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Many images, and a video of many frames."""
    folder = tmp_path_factory.mktemp("sources")
    video = write_video(folder / "in.mp4", MANY)
    return {"images": many_images(folder / "in", MANY), "video": video}


@pytest.mark.parametrize(
    ("request_", "code", "errors", "kind"),
    [
        (signal.SIGINT, EXIT_INTERRUPTED, "interrupted\n", "images"),
        (signal.SIGTERM, EXIT_TERMINATED, "", "video"),
    ],
)
def test_interrupted_detection_leaves_whole_files(
    weights, sources, tmp_path, request_, code, errors, kind
):
    folder = tmp_path / "runs" / "exp"
    command = [sys.executable, "detect.py", *arguments(weights, sources[kind], folder.parent)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))  # fmt: skip
    wait_until(lambda: any(folder.glob("*")) or any(folder.glob(".in.mp4*")))
    process.send_signal(request_)
    out, reported = process.communicate(timeout=SECONDS)
    assert (process.returncode, reported) == (code, errors)
    line = out.splitlines()[-1]
    done = int(re.match(r"stopped after ([\d,]+) ", line)[1].replace(",", ""))
    assert line.endswith(f"; results so far saved to {folder}") and done < MANY
    if kind == "images":
        names = drawn(folder)
        assert names == [f"{n:05d}.jpg" for n in range(len(names))] and len(names) == done
        assert all(cv2.imread(str(folder / name)) is not None for name in names)
    else:
        assert frames_of(folder / "in.mp4") == done
    assert not list(folder.rglob(".*"))


def frames_of(path):
    video = cv2.VideoCapture(str(path))
    return sum(1 for _ in iter(lambda: video.read()[0], False))


def write_drawn_video(path: Path, photographs: Path) -> None:
    """Write a video of two photographs of coco256: a person walks before a chair that is moved."""
    person = photograph(photographs, "000000004395", (104, 70))
    chair = photograph(photographs, "000000004495", (96, 84), (slice(152, 325), slice(2, 154)))
    with closing(VideoWriter(path, (HEIGHT, WIDTH))) as video:
        for number in range(NUM_FRAMES):
            image = np.full((HEIGHT, WIDTH, 3), 120, np.uint8)
            paste(image, chair, 60, 170 - 8 * number)
            paste(image, person, 20, 2 + 8 * number)
            video.write(image, number / RATE)


def photograph(
    folder: Path, name: str, size: tuple[int, int], part: tuple[slice, slice] = (slice(None),) * 2
) -> np.ndarray:
    (path,) = folder.glob(f"*/{name}.jpg")
    image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)[part]
    return cv2.resize(image, size[::-1], interpolation=cv2.INTER_AREA)


def paste(image: np.ndarray, part: np.ndarray, top: int, left: int) -> None:
    height, width = part.shape[:2]
    shown = slice(max(left, 0), min(left + width, WIDTH))
    image[top : top + height, shown] = part[:, shown.start - left : shown.stop - left]


def test_whole_video_is_tracked_drawn_and_written(monkeypatch, caplog, tmp_path):
    video, project = tmp_path / "walk.mp4", tmp_path / "runs"
    write_drawn_video(video, shared_path("data/coco256/images"))
    flags = ("--img", WIDTH, "--classes", PERSON, CHAIR, "--track", "--save-txt", "--save-json")
    weights = shared_path("weights/coco-yolov5n-v6.pt")
    run_here(monkeypatch, caplog, weights, video, project, *flags)
    document = json.loads((project / "exp" / "detections.json").read_text())
    records = document["images"]
    assert [record["frame"] for record in records] == list(range(NUM_FRAMES))
    times = np.arange(NUM_FRAMES) / RATE
    np.testing.assert_allclose([record["seconds"] for record in records], times, atol=1e-6)

    person_ids, centres = [], []
    for number, record in enumerate(records, start=1):
        assert record["name"] == f"walk_{number}"
        lines = (project / "exp" / "labels" / f"walk_{number}.txt").read_text().splitlines()
        rows = [[float(word) for word in line.split()] for line in lines[::-1]]
        found = record["detections"]
        assert [(row[0], row[5]) for row in rows] == [
            (x["class_index"], x["track_id"]) for x in found
        ]
        for row, one in zip(rows, found, strict=True):
            left, top, right, bottom = one["box_xyxy"]
            box = (left + right) / 2 / WIDTH, (top + bottom) / 2 / HEIGHT, (right - left) / WIDTH
            np.testing.assert_allclose(row[1:4], box, rtol=1e-5)  # six digits
        (person,) = [row for row in rows if row[0] == PERSON]
        person_ids.append(person[5])
        centres.append(person[1] * WIDTH)
    assert person_ids == [-1] + [1] * (NUM_FRAMES - 1)
    # It walks 8 px a frame, and the network is a few pixels off.
    np.testing.assert_allclose(centres, centres[0] + 8 * np.arange(NUM_FRAMES), atol=4)

    written = list(VideoFile(project / "exp" / "walk.mp4", max_pixels=10**6).frames())
    assert [frame.number for frame in written] == list(range(NUM_FRAMES))
    np.testing.assert_allclose([frame.seconds for frame in written], times, atol=1e-6)
    assert frames_of(project / "exp" / "walk.mp4") == NUM_FRAMES
    for drawn_frame, plain in zip(written, VideoFile(video, 10**6).frames(), strict=True):
        assert drawn_frame.image.shape == (HEIGHT, WIDTH, 3)
        differs = np.abs(drawn_frame.image.astype(int) - plain.image).max(axis=2) > 60
        assert 0.01 < differs.mean() < 0.5  # lines and labels alone


def test_absent_built_in_images_are_drawn(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert parse_detect_flags(["--weights", "x"]).source == "shapes"
    monkeypatch.setitem(BUILT_INS, "shapes", partial(draw_dataset, config=SMALL_SHAPES))
    place = Path(detect.place_of("shapes"))
    assert len(list(place.glob("*.jpg"))) == SMALL_SHAPES.num_val
    assert detect.place_of("elsewhere") == "elsewhere"


def test_view_img_shows_each_image_and_q_ends_the_run(monkeypatch, caplog, weights, tmp_path):
    monkeypatch.setattr(cv2, "currentUIFramework", lambda: "QT5")
    monkeypatch.setenv("DISPLAY", ":0")
    shown = []
    monkeypatch.setattr(cv2, "imshow", lambda title, image: shown.append(image))
    monkeypatch.setattr(cv2, "waitKey", lambda delay: ord("q") if len(shown) == 2 else -1)
    folder = many_images(tmp_path / "in", 50)
    with pytest.raises(KeyboardInterrupt):
        run_here(monkeypatch, caplog, weights, folder, tmp_path / "runs", "--view-img")
    assert 2 <= len(shown) < 50 and {image.shape for image in shown} == {(48, 64, 3)}
    assert np.array_equal(shown[0], shown[1])


def make_detect(folder):
    command = ["make", "-f", str(PROJECT / "Makefile"), "detect", "PYTHON=true"]
    environment = {name: x for name, x in os.environ.items() if not name.startswith("MAKE")}
    environment.pop("BACKEND", None)
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )


def test_make_detect_uses_the_newest_demo_weights(tmp_path):
    for age, name in enumerate(("demo2", "demo", "exp")):
        weights = tmp_path / "runs" / "train" / name / "weights" / "best.safetensors"
        weights.parent.mkdir(parents=True)
        weights.touch()
        os.utime(weights, (1000 - age, 1000 - age))
    python = tmp_path / ".venv" / "torch" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    assert make_detect(tmp_path).stdout.splitlines() == [
        "detect.py --backend torch --weights runs/train/demo2/weights/best.safetensors"
    ]
