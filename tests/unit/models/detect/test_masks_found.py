"""Masks from weights to results: one image or many, calls, streams, videos, detect.py, the hub."""

import json

import numpy as np
import pytest

import detect
import hubconf
from duet import load
from duet.utils.data.image.image_file import save_image
from duet.utils.errors import UserError
from tests.tiny_tasks import write_tiny_segmenter
from tests.tiny_weights import noise

IMAGES = [noise(64, 96, 1), noise(96, 64, 2), noise(33, 70, 3), noise(64, 96, 4)]
SIZE = 64


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_tiny_segmenter(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def detector(weights):
    return load(weights, device="cpu")


def assert_same(results, others):
    assert len(results) == len(others)
    for one, other in zip(results, others, strict=True):
        assert len(one) > 5 and np.asarray(one.masks).any()
        for field, same in zip(one.found[:3], other.found[:3], strict=True):
            np.testing.assert_array_equal(field, same)
        for field, same in zip(one.found.masks, other.found.masks, strict=True):
            np.testing.assert_array_equal(field, same)


def test_what_is_found_in_an_image_depends_neither_on_others_nor_on_the_way(detector):
    singles = [detector(image, size=SIZE)[0] for image in IMAGES]
    assert_same(detector(IMAGES, size=SIZE), singles)
    assert_same(list(detector.stream(IMAGES, size=SIZE)), singles)


def test_detect_writes_what_a_call_finds(detector, weights, tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    for number, image in enumerate(IMAGES):
        save_image(tmp_path / f"images/{number}.png", image)
    flags = ["--source", tmp_path / "images", "--weights", weights, "--img", SIZE, "--device"]
    flags += ["cpu", "--project", tmp_path, "--name", "run", "--save-txt", "--save-json"]
    monkeypatch.setattr("sys.argv", ["detect.py", *map(str, flags)])
    detect.main()
    records = json.loads((tmp_path / "run/detections.json").read_text())["images"]
    for number, (record, result) in enumerate(
        zip(records, detector(IMAGES, size=SIZE), strict=True)
    ):
        assert record["detections"] == result.to_dict()["detections"]
        lines = (tmp_path / f"run/labels/{number}.txt").read_text().splitlines()
        assert lines == result.text_lines()
        assert (tmp_path / f"run/{number}.png").exists()


def test_tracked_objects_keep_their_masks(detector):
    pytest.importorskip("trackers")
    frames = list(detector.stream([IMAGES[0]] * 3, size=SIZE, track=True))
    (plain,) = detector(IMAGES[0], size=SIZE)
    assert (frames[-1].track_ids > 0).any()
    masks = {
        tuple(box): mask for box, mask in zip(plain.boxes_xyxy.tolist(), plain.masks, strict=True)
    }
    for box, mask in zip(frames[-1].boxes_xyxy.tolist(), frames[-1].masks, strict=True):
        if tuple(box) in masks:
            np.testing.assert_array_equal(mask, masks[tuple(box)])
    assert masks.keys() & set(map(tuple, frames[-1].boxes_xyxy.tolist()))


def test_the_hubs_results_are_the_boxes_and_drawings_with_masks(weights, detector):
    image = noise(SIZE, SIZE)  # of another size the hub's model resizes otherwise
    results = hubconf.custom(str(weights), device="cpu")(image, size=SIZE)
    (result,) = detector(image, size=SIZE)
    np.testing.assert_array_equal(results.xyxy[0].cpu().numpy()[:, :4], result.boxes_xyxy)
    np.testing.assert_array_equal(results.render()[0], result.plot())


def test_what_masks_cannot_do_is_refused_before_anything_is_read(detector, weights):
    with pytest.raises(UserError, match="--tile: masks from tiles cannot be merged"):
        detector("absent.jpg", size=SIZE, tile=64)
    with pytest.raises(UserError, match="--augment|augment"):
        detector(IMAGES[0], size=SIZE, augment=True)
    with pytest.raises(UserError, match="cannot be combined"):
        load([weights, weights], device="cpu")
