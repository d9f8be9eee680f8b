"""Ids of planted detections: noisy, missing, crossing, weak, of none."""

from pathlib import Path

import numpy as np
import pytest

from duet.utils.detect.media.source import Frame
from duet.utils.detect.tracker import NO_ID, SourceTrackers, Tracker
from duet.utils.geometry.detections import Detections

CONFIDENCE = 0.25
RATE = 25
IMAGE = np.zeros((4, 4, 3), np.uint8)


def frame(number: int, rate: float = RATE) -> Frame:
    return Frame(IMAGE, "video", number, number / rate)


def boxes(*rows: tuple[float, float, float], side: float = 40) -> Detections:
    """Squares of (left, top, score)."""
    table = np.array(rows, np.float32).reshape(-1, 3)
    corners = np.concatenate([table[:, :2], table[:, :2] + np.float32(side)], axis=1)
    return Detections(corners, table[:, 2], np.zeros(len(table), np.int64))


def track(tracker: Tracker, *frames: Detections, first: int = 0) -> list[list[int]]:
    """The ids of each frame."""
    return [
        tracker.update(detections, frame(first + number))[1].tolist()
        for number, detections in enumerate(frames)
    ]


def new_tracker(confidence: float = CONFIDENCE) -> Tracker:
    return Tracker(RATE, confidence)


def test_object_gets_one_id_from_its_second_frame_on():
    walk = [boxes((10 + 4 * step, 20, 0.9)) for step in range(20)]
    assert track(new_tracker(), *walk) == [[NO_ID]] + [[1]] * 19


def test_weak_detection_continues_but_never_starts_a_track():
    known, unknown = (10, 10, 0.9), (300, 200, 0.2)
    tracker = new_tracker()
    track(tracker, boxes(known), boxes(known))
    for number in range(2, 6):
        found, ids = tracker.update(boxes(unknown, (10, 10, 0.12)), frame(number))
        assert ids.tolist() == [1]  # what has a score below --conf and no id is left out
        assert found.scores.tolist() == pytest.approx([0.12])


def test_object_keeps_its_id_across_a_subsecond_gap():
    walk = [boxes((10 + 4 * step, 20, 0.9)) for step in range(60)]
    hidden = [boxes() if 20 <= step < 40 else one for step, one in enumerate(walk)]
    ids = track(new_tracker(), *hidden)
    assert ids[20:40] == [[]] * 20  # 0.8 s
    assert ids[40:] == [[1]] * 20


def test_object_absent_for_two_seconds_gets_a_new_id():
    walk = [boxes((10, 20, 0.9))] * 10
    ids = track(new_tracker(), *walk, *[boxes()] * (2 * RATE), *walk)
    assert ids[9] == [1] and ids[-10:] == [[NO_ID]] + [[2]] * 9


def of_class(class_index: int, *rows: tuple[float, float, float]) -> Detections:
    return boxes(*rows)._replace(class_index=np.full(len(rows), class_index))


def join(*parts: Detections) -> Detections:
    return Detections(*(np.concatenate(fields) for fields in zip(*parts, strict=True)))


def test_boxes_of_two_classes_on_one_object_keep_own_ids():
    """Which NMS leaves where a chair may be a couch; now one, now the other scores higher."""
    random = np.random.default_rng(0)
    tracker = new_tracker()
    for number in range(30):
        chair, couch = random.uniform(-3, 3, (2, 2))
        x = 10 + 4 * number
        both = [of_class(56, (x + chair[0], 20 + chair[1], 0.6)),
            of_class(57, (x + couch[0], 20 + couch[1], 0.5))]  # fmt: skip
        found, ids = tracker.update(join(*both[:: 1 if number % 2 else -1]), frame(number))
        if number:
            expected = {57: 1, 56: 2}  # the couch came first in the first frame
            assert ids.tolist() == [expected[index] for index in found.class_index.tolist()]


def test_changed_class_keeps_its_id_only_when_agnostic():
    walk = [of_class(2 if step < 10 else 7, (10 + 4 * step, 20, 0.9)) for step in range(20)]
    ids = track(Tracker(RATE, CONFIDENCE, class_agnostic=True), *walk)
    assert ids == [[NO_ID]] + [[1]] * 19
    ids = track(Tracker(RATE, CONFIDENCE), *walk)
    assert ids == [[NO_ID]] + [[1]] * 9 + [[NO_ID]] + [[2]] * 9


@pytest.mark.parametrize("side", [np.nan, np.inf, -np.inf])
def test_non_finite_box_gets_no_id_and_disturbs_no_track(side):
    rows = boxes((10, 10, 0.9), (200, 100, 0.8))
    broken = boxes((10, 10, 0.9), (200, 100, 0.8))
    broken.boxes_xyxy[0, 2] = side
    assert track(new_tracker(), rows, rows, broken, rows)[1:] == [[1, 2], [NO_ID, 2], [1, 2]]


IN_VIEW, NEW, KNOWN = boxes((10, 10, 0.9)), [NO_ID], [1]


def ids_of(trackers: SourceTrackers, *frames: Frame) -> list[list[int]]:
    return [trackers.update(IN_VIEW, one, rate=25)[1].tolist() for one in frames]


def video(name: str, *numbers: int) -> list[Frame]:
    return [Frame(IMAGE, Path(name), number, number / 25) for number in numbers]


def test_ids_restart_at_1_in_each_video():
    trackers = SourceTrackers(0.25)
    for name in ("a.mp4", "b.mp4"):
        assert ids_of(trackers, *video(name, 0, 1, 2)) == [NEW, KNOWN, KNOWN]


def test_interleaved_sources_are_tracked_separately():
    turns = zip(video("a.mp4", 0, 1, 2), video("b.mp4", 5, 6, 7), strict=True)
    found = ids_of(SourceTrackers(0.25), *[one for turn in turns for one in turn])
    assert found == [NEW, NEW, KNOWN, KNOWN, KNOWN, KNOWN]


def test_folder_images_form_one_sequence():
    trackers = SourceTrackers(0.25)
    images = [Frame(IMAGE, Path(f"{number}.jpg")) for number in range(3)]
    assert ids_of(trackers, *images) == [NEW, KNOWN, KNOWN]
    assert ids_of(trackers, *video("a.mp4", 0)) == [NEW]


@pytest.mark.parametrize(("rate", "between"), [(25, 2.5), (0.2, 5.0), (None, 1.5)])
def test_slow_frames_are_tracked_despite_two_misses(rate, between):
    """As of a stream that the network is too slow for: one image in more than a second."""
    tracker = Tracker(rate, CONFIDENCE)
    ids = []
    for step in range(12):
        seen = boxes() if step in (6, 7) else boxes((10 + 2 * step, 20, 0.9))
        shown = Frame(IMAGE, "camera", step * 60, step * between)
        ids.append(tracker.update(seen, shown)[1].tolist())
    assert ids[3:6] == ids[8:][:3] and ids[5] == ids[-1] != [NO_ID]
