"""Each source has ids of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from utils.detections import Detections
from utils.media.frame import Frame
from utils.tracking.sources import SourceTrackers
from utils.tracking.tracker import NO_ID

IMAGE = np.zeros((4, 4, 3), np.uint8)
FOUND = Detections(
    np.array([[10, 10, 50, 50]], np.float32), np.array([0.9], np.float32), np.zeros(1, np.int64)
)
NEW, KNOWN = [NO_ID], [1]


def ids(trackers: SourceTrackers, *frames: Frame) -> list[list[int]]:
    return [trackers.update(FOUND, frame, rate=25)[1].tolist() for frame in frames]


def video(name: str, *numbers: int) -> list[Frame]:
    return [Frame(IMAGE, Path(name), number, number / 25) for number in numbers]


def test_ids_begin_at_1_in_each_video():
    trackers = SourceTrackers(0.25)
    assert ids(trackers, *video("a.mp4", 0, 1, 2)) == [NEW, KNOWN, KNOWN]
    assert ids(trackers, *video("b.mp4", 0, 1, 2)) == [NEW, KNOWN, KNOWN]


def test_a_video_that_is_read_twice_begins_again():
    trackers = SourceTrackers(0.25)
    assert ids(trackers, *video("a.mp4", 0, 1)) == [NEW, KNOWN]
    assert ids(trackers, *video("a.mp4", 0, 1)) == [NEW, KNOWN]


def test_sources_that_take_turns_do_not_disturb_each_other():
    trackers = SourceTrackers(0.25)
    turns = zip(video("a.mp4", 0, 1, 2), video("b.mp4", 5, 6, 7), strict=True)
    found = ids(trackers, *[frame for turn in turns for frame in turn])
    assert found == [NEW, NEW, KNOWN, KNOWN, KNOWN, KNOWN]


def test_images_of_a_folder_are_one_sequence():
    trackers = SourceTrackers(0.25)
    images = [Frame(IMAGE, Path(f"{number}.jpg")) for number in range(3)]
    assert ids(trackers, *images) == [NEW, KNOWN, KNOWN]
    assert ids(trackers, *video("a.mp4", 0)) == [NEW]
