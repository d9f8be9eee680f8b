"""Classes and masks from weights to results: calls, streams, videos, detect.py, the hub."""

import csv
import json
from collections import Counter

import numpy as np
import pytest

import detect
import hubconf
from duet import load
from duet.utils.data.image.image_file import save_image
from duet.utils.detect.results.result import ClassResult
from duet.utils.errors import UserError
from tests.small import noise, write_tiny_classifier, write_tiny_segmenter

IMAGES = [noise(64, 96, 1), noise(96, 64, 2), noise(33, 70, 3), noise(64, 96, 4)]
SIZE = 64
# With another batch size PyTorch's CPU kernels may add in another order: float32 rounding of the
# means, times the large weights of the tiny head.
BATCH_TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_tiny_classifier(tmp_path_factory.mktemp("weights"), trained_at=SIZE)


@pytest.fixture(scope="module")
def detector(weights):
    return load(weights, device="cpu")


@pytest.fixture
def run(weights, tmp_path, monkeypatch):
    """What runs detect.py on files of IMAGES and returns the folder of the run."""
    (tmp_path / "images").mkdir()
    for number, image in enumerate(IMAGES):
        save_image(tmp_path / f"images/{number}.png", image)

    def run(*flags):
        given = ["--source", tmp_path / "images", "--weights", weights, "--device", "cpu"]
        given += ["--project", tmp_path, "--name", "run"]
        monkeypatch.setattr("sys.argv", ["detect.py", *map(str, (*given, *flags))])
        detect.main()
        return tmp_path / "run"

    return run


def probabilities(results):
    return np.stack([result.probabilities for result in results])


def test_class_probabilities_do_not_depend_on_batch_or_call(detector):
    singles = [detector(image)[0] for image in IMAGES]
    assert all(isinstance(result, ClassResult) and len(result) == 5 for result in singles)
    found = probabilities(singles)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)  # rounding of five numbers
    assert len({result.top5[0] for result in singles}) > 1
    np.testing.assert_array_equal(probabilities(detector(IMAGES)), found)
    np.testing.assert_array_equal(probabilities(detector.stream(IMAGES)), found)
    together = probabilities(detector(IMAGES, batch=4))
    np.testing.assert_allclose(together, found, atol=BATCH_TOLERANCE)


def test_default_size_is_the_training_size(detector, tmp_path):
    found = probabilities(detector(IMAGES))
    np.testing.assert_array_equal(found, probabilities(detector(IMAGES, size=SIZE)))
    assert np.abs(found - probabilities(detector(IMAGES, size=640))).max() > 1e-3
    unknown = load(write_tiny_classifier(tmp_path), device="cpu")
    np.testing.assert_array_equal(
        probabilities(unknown(IMAGES)), probabilities(detector(IMAGES, size=224))
    )


def test_detect_writes_classes_of_each_image(detector, run, tmp_path, capsys, caplog):
    with caplog.at_level("INFO"):
        folder = run("--save-txt", "--save-json", "--save-csv")
    results = detector([tmp_path / f"images/{number}.png" for number in range(4)])
    records = json.loads((folder / "detections.json").read_text())["images"]
    assert [record["classes"] for record in records] == [x.to_dict()["classes"] for x in results]
    for number, result in enumerate(results):
        lines = (folder / f"labels/{number}.txt").read_text().splitlines()
        assert lines == [f"{found.score:.2f} {found.name}" for found in result]
        assert f"{number}.png: {SIZE}x{SIZE} {result.words()}, " in caplog.text
    with open(folder / "predictions.csv", newline="", encoding="utf-8") as file:
        table = list(csv.reader(file))
    assert [row[1] for row in table] == [name for result in results for name in result.names]
    best = Counter(result.names[0] for result in results).most_common()
    assert f"found: {', '.join(f'{name} {number}' for name, number in best)}\n" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--conf-thres", "0.5"), "--conf: the top five classes"),
        (("--tile", "64"), "--tile: classifiers process images as a whole"),
        (("--line-thickness", "3"), "--line-thickness: "),
    ],
)
def test_detection_flags_are_refused_for_a_classifier(run, tmp_path, flags, named):
    with pytest.raises(UserError, match=f"^{named}.*leave it out$"):
        run(*flags)
    assert not (tmp_path / "run").exists()


def test_hub_refers_classifiers_to_load(weights):
    with pytest.raises(UserError, match="results are boxes.*use `duet.load` instead"):
        hubconf.custom(str(weights), device="cpu")


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory):
    return write_tiny_segmenter(tmp_path_factory.mktemp("masks"))


@pytest.fixture(scope="module")
def finder(segmenter):
    return load(segmenter, device="cpu")


def assert_same(results, others):
    assert len(results) == len(others)
    for one, other in zip(results, others, strict=True):
        assert len(one) > 5 and np.asarray(one.masks).any()
        for field, same in zip(one.found[:3], other.found[:3], strict=True):
            np.testing.assert_array_equal(field, same)
        for field, same in zip(one.found.masks, other.found.masks, strict=True):
            np.testing.assert_array_equal(field, same)


def test_results_do_not_depend_on_batch_or_call(finder):
    singles = [finder(image, size=SIZE)[0] for image in IMAGES]
    assert_same(finder(IMAGES, size=SIZE), singles)
    assert_same(list(finder.stream(IMAGES, size=SIZE)), singles)


def test_detect_writes_the_same_results_as_a_call(finder, segmenter, run):
    folder = run("--weights", segmenter, "--img", SIZE, "--save-txt", "--save-json")
    records = json.loads((folder / "detections.json").read_text())["images"]
    for number, (record, result) in enumerate(zip(records, finder(IMAGES, size=SIZE), strict=True)):
        assert record["detections"] == result.to_dict()["detections"]
        lines = (folder / f"labels/{number}.txt").read_text().splitlines()
        assert lines == result.text_lines()
        assert (folder / f"{number}.png").exists()


def test_tracked_objects_keep_their_masks(finder):
    pytest.importorskip("trackers")
    frames = list(finder.stream([IMAGES[0]] * 3, size=SIZE, track=True))
    (plain,) = finder(IMAGES[0], size=SIZE)
    assert (frames[-1].track_ids > 0).any()
    masks = {
        tuple(box): mask for box, mask in zip(plain.boxes_xyxy.tolist(), plain.masks, strict=True)
    }
    for box, mask in zip(frames[-1].boxes_xyxy.tolist(), frames[-1].masks, strict=True):
        if tuple(box) in masks:
            np.testing.assert_array_equal(mask, masks[tuple(box)])
    assert masks.keys() & set(map(tuple, frames[-1].boxes_xyxy.tolist()))


def test_hub_results_include_masks_in_the_drawings(segmenter, finder):
    image = noise(SIZE, SIZE)  # of another size the hub's model resizes otherwise
    results = hubconf.custom(str(segmenter), device="cpu")(image, size=SIZE)
    (result,) = finder(image, size=SIZE)
    np.testing.assert_array_equal(results.xyxy[0].cpu().numpy()[:, :4], result.boxes_xyxy)
    np.testing.assert_array_equal(results.render()[0], result.plot())


def test_options_unsupported_for_masks_are_refused_first(finder, segmenter):
    with pytest.raises(UserError, match="--tile: masks from tiles cannot be merged"):
        finder("absent.jpg", size=SIZE, tile=64)
    with pytest.raises(UserError, match="--augment|augment"):
        finder(IMAGES[0], size=SIZE, augment=True)
    with pytest.raises(UserError, match="cannot be combined"):
        load([segmenter, segmenter], device="cpu")
