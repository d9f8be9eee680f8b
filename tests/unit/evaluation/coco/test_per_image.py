"""Outcomes per image: average precision over any choice of images, intervals, and their file."""

import tracemalloc

import numpy as np
import pytest

from duet import compare_runs
from duet.utils.errors import UserError
from duet.utils.evaluation.coco.metric import NUM_EXAMPLES, DetectionEvaluator
from duet.utils.evaluation.coco.per_image import (
    FILE,
    PerImage,
    interval,
    mean_over_classes,
    read_per_image,
    write_per_image,
)
from duet.utils.evaluation.coco.precision import CONFIDENCE_GRID, curves_by_confidence
from tests.coco_reference import detections, evaluate, ground_truth
from tests.unit.evaluation.coco.test_metric import generator, random_image

NUM_CLASSES = 3


def images_of(seed, number=12, score_levels=0, moved=0.0):
    random = generator(seed)
    found = [
        random_image(random, NUM_CLASSES, 4, 9, score_levels, False, True) for _ in range(number)
    ]
    if moved:
        found = [(x._replace(boxes_xyxy=x.boxes_xyxy + np.float32(moved)), y) for x, y in found]
    return dict(enumerate(found))


@pytest.mark.parametrize("seed", range(3))
def test_per_image_ap_with_unit_counts_equals_the_metric(seed):
    result = evaluate(images_of(seed), NUM_CLASSES + 1)  # the last class has no object
    found = result.per_image.average_precision(np.ones(12, np.int64))
    np.testing.assert_allclose(found, result.ap, rtol=1e-12)
    assert np.isnan(found[-1])
    assert mean_over_classes(found) == pytest.approx(result.map)


def test_repeated_images_count_as_copies():
    """Scores are all different, so that the order of copies in the whole set is certain."""
    images = images_of(5)
    times = np.array([2, 0, 1, 3, 0, 1, 1, 0, 2, 1, 1, 0])
    copies = [images[index] for index, number in enumerate(times) for _ in range(number)]
    wanted = evaluate(dict(enumerate(copies)), NUM_CLASSES)
    found = evaluate(images, NUM_CLASSES).per_image.average_precision(times)
    np.testing.assert_allclose(found, wanted.ap, rtol=1e-12)


def test_bootstrap_draws_are_reproducible():
    per_image = evaluate(images_of(1), NUM_CLASSES).per_image
    first, again = (per_image.bootstrap(20) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    low, high = interval(mean_over_classes(first))
    assert low < mean_over_classes(per_image.average_precision(np.ones(12, np.int64))) < high


def test_false_positive_costs_few_bytes_per_draw():
    """COCO's 5,000 images have 1.5 million; a number for each threshold would take 80 bytes."""
    number = 100_000
    places, correct = np.arange(number), np.zeros((10, number), bool)
    correct[:, ::10_000] = True
    objects = np.ones((number, 1), np.int32)
    found = PerImage(places, np.zeros(number, np.int64), correct, ~np.zeros_like(correct), objects)
    tracemalloc.start()
    (only,) = found.average_precision(np.ones(number, np.int64))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert only == pytest.approx(1 / 101)  # precision 1 at recall 0, and 10 of 100,000 objects
    assert peak < 60 * number


def write(folder, images, names=None, classes="abc"):
    folder.mkdir()
    names = names or [f"{index}.jpg" for index in images]
    write_per_image(folder / FILE, evaluate(images, NUM_CLASSES).per_image, names, list(classes))
    return folder


def compare(monkeypatch, *runs):
    monkeypatch.setattr("sys.argv", ["duet compare-runs", *map(str, runs)])
    compare_runs.main()


def test_per_image_file_round_trips(tmp_path):
    images = images_of(2)
    found, names, classes = read_per_image(write(tmp_path / "a", images) / FILE)
    wanted = evaluate(images, NUM_CLASSES).per_image
    assert all(np.array_equal(x, y) for x, y in zip(found, wanted, strict=True))
    assert (len(names), names[1], classes) == (12, "1.jpg", ["a", "b", "c"])


def test_significance_separates_clear_difference_from_noise(monkeypatch, capsys, tmp_path):
    images = images_of(3, number=30)
    one, same = write(tmp_path / "one", images), write(tmp_path / "same", images)
    compare(monkeypatch, one, same)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[0] == "all" and lines[1].endswith("+0.000 (+0.000 to +0.000)")
    assert "the difference is no more than noise: 1,000 draws of 30 images" in lines
    assert lines[-1].startswith("both runs find equally many objects in each image")
    worse = write(tmp_path / "worse", images_of(3, number=30, moved=9))
    compare(monkeypatch, one, worse)
    text = capsys.readouterr().out
    assert "the difference is more than noise" in text
    assert len(text.split("differ most:")[1].strip().splitlines()) == compare_runs.MOST_IMAGES


def test_comparing_runs_on_other_images_is_refused(monkeypatch, tmp_path):
    one = write(tmp_path / "one", images_of(3))
    for name, other in {
        "images": write(tmp_path / "images", images_of(3), [f"b{x}" for x in range(12)]),
        "classes": write(tmp_path / "classes", images_of(3), classes="abd"),
        "objects": write(tmp_path / "objects", images_of(4)),
    }.items():
        with pytest.raises(UserError, match=f"{name} have other images, classes or objects; run"):
            compare(monkeypatch, one, other)


def test_damaged_per_image_files_are_refused(monkeypatch, tmp_path):
    one = write(tmp_path / "one", images_of(3))
    content = (one / FILE).read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(UserError, match="other: no per_image.npz in it; give the results folders"):
        compare(monkeypatch, one, other)
    with pytest.raises(UserError, match="per_image.npz: no per_image.npz in it; give the results"):
        compare(monkeypatch, one, one / FILE)
    for damaged in (b"", content[: len(content) // 2], content.replace(b"words", b"wards")):
        (other / FILE).write_bytes(damaged)
        with pytest.raises(UserError, match="damaged, or not written by val.py"):
            compare(monkeypatch, one, other)


@pytest.mark.parametrize(
    "change",
    [{"image": np.zeros(1)}, {"image": np.zeros((1, 1), int)}, {"correct": np.ones((10, 1))},
     {"objects": np.full((1, 1), np.nan)}, {"class_index": np.array(["a"])}],
)  # fmt: skip
def test_inconsistent_per_image_arrays_are_refused(tmp_path, change):
    rows, flags = np.zeros(1, np.int64), np.ones((10, 1), bool)
    whole = PerImage(rows, rows, flags, flags, np.ones((1, 1), np.int32))
    write_per_image(tmp_path / FILE, whole, ["a.jpg"], ["a"])
    assert read_per_image(tmp_path / FILE)[1:] == (["a.jpg"], ["a"])
    write_per_image(tmp_path / FILE, whole._replace(**change), ["a.jpg"], ["a"])
    with pytest.raises(UserError, match="its arrays do not fit together"):
        read_per_image(tmp_path / FILE)


def random_detections(random, num_classes, number):
    """Scores of which half lie on the grid."""
    scores = random.uniform(0, 1, number).astype(np.float32)
    scores = np.where(random.uniform(size=number) < 0.5, np.round(scores, 1), scores)
    return scores, random.integers(0, num_classes, number), random.uniform(size=number) < 0.4


def test_curves_count_detections_at_each_confidence():
    random = np.random.Generator(np.random.Philox(5))
    scores, class_index, correct = random_detections(random, 4, 300)
    objects = np.array([200, 0, 50, 100])
    found = curves_by_confidence(scores, class_index, correct, objects)
    for place in (0, 1, 50, 249, 250, 400, 500):
        left = scores >= CONFIDENCE_GRID[place]
        for index in range(4):
            number = (left & (class_index == index)).sum()
            right = (left & correct & (class_index == index)).sum()
            nan = np.nan
            known = objects[index] > 0
            precision = right / number if number and known else nan
            recall = right / objects[index] if known else nan
            f1 = 2 * right / (number + objects[index]) if known else nan
            for curve, expected in zip(found, (precision, recall, f1), strict=True):
                assert curve.shape == (4, 501)
                np.testing.assert_equal(curve[index, place], expected)


def box_at(place):
    return [place, place, place + 10, place + 10]


def evaluator_of(scores_by_image):
    evaluator = DetectionEvaluator(["a"])
    for image_id, scores in scores_by_image.items():
        boxes = [box_at(20 * number) for number in range(len(scores))]
        found = detections(boxes, scores, [0] * len(scores))
        evaluator.add(image_id, found, ground_truth([0], [box_at(0)]))
    return evaluator.result()


def test_curves_contain_the_metrics_at_best_confidence():
    result = evaluator_of({0: [0.75, 0.5], 1: [0.5, 0.125]})
    assert result.confidence == 0.5
    place = int(np.searchsorted(CONFIDENCE_GRID, 0.5))
    assert CONFIDENCE_GRID[place] == 0.5
    curves = result.by_confidence
    assert curves.precision[0, place] == result.means[0] == 2 / 3
    assert curves.recall[0, place] == result.means[1] == 1


def test_examples_keep_first_images_and_scores_above_025():
    result = evaluator_of({50: [0.9], 47: [0.75, 0.25, 0.5], 3: []})
    assert NUM_EXAMPLES == 48 and list(result.examples) == [3, 47]
    assert result.examples[47].found.scores.tolist() == [0.75, 0.5]
    assert result.examples[47].found.boxes_xyxy.tolist() == [box_at(0), box_at(40)]
    assert result.examples[3].truth.boxes_xyxy.tolist() == [box_at(0)]
