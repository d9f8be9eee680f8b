"""A video, a network and a tracker together."""

from __future__ import annotations

from models.inference.image_detector import ImageDetector
from models.inference.predictor import make_predictor
from tests.shared_files import shared_path
from tests.unit.tracking.drawn_video import NUM_FRAMES, WIDTH, write_drawn_video
from utils.evaluation.nms import SuppressionSettings
from utils.media.video import VideoFile
from utils.tracking.tracker import SourceTrackers, needed_threshold
from utils.weights.load import load_weights

PERSON, CHAIR = 0, 56  # of COCO's 80 classes


def test_an_object_keeps_its_id_behind_another_one(tmp_path):
    write_drawn_video(tmp_path / "a.mp4", shared_path("data/coco256/images"))
    weights = load_weights(str(shared_path("weights/coco-yolov5n-v6.pt")))
    suppression = SuppressionSettings(
        confidence_threshold=needed_threshold(0.25), iou_threshold=0.45, class_agnostic=False,
        classes=(PERSON, CHAIR), max_detections=100, multi_label=False,
    )  # fmt: skip
    detector = ImageDetector(make_predictor([weights], "cpu"), "cpu", WIDTH, suppression)
    trackers, video = SourceTrackers(0.25), VideoFile(tmp_path / "a.mp4", max_pixels=10**6)
    ids: dict[int, list[int]] = {PERSON: [], CHAIR: []}
    for frame in video.frames():
        (detections,) = detector.detect([frame.image])
        found, numbers = trackers.update(detections, frame, video.rate)
        for index, number in zip(found.class_index.tolist(), numbers.tolist(), strict=True):
            ids[index].append(number)
    assert ids[PERSON] == [-1] + [1] * (NUM_FRAMES - 1)
    # The person hides it in some of the frames, and the network finds it in most of the others.
    assert set(ids[CHAIR]) == {-1, 2} and 16 <= len(ids[CHAIR]) < NUM_FRAMES
