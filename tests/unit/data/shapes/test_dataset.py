"""The built-in datasets: complete, repeatable, and labelled as they are drawn."""

import dataclasses
import multiprocessing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest

from duet.utils.data.masks.runs import mask_of_runs, runs_of_polygons
from duet.utils.data.randomness import sample_generator
from duet.utils.data.shapes.dataset import CLASSES, ShapesConfig, draw_class_dataset, draw_dataset
from duet.utils.data.shapes.scene import Scene, draw_one_shape, draw_scene, visible_outlines
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.image_sources import list_images
from duet.utils.data.sources.splits import load_split, scan_samples
from duet.utils.errors import DatasetError
from duet.utils.geometry.boxes import pairwise_iou

SMALL = ShapesConfig(num_train=6, num_val=3, image_side=96)
SMALL_CLASSES = ShapesConfig(num_train=20, num_val=10, image_side=48)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}


def test_drawn_shapes_form_an_ordinary_dataset(tmp_path):
    dataset = load_dataset(draw_dataset(tmp_path / "shapes", SMALL))
    assert dataset.class_names == ("circle", "square", "triangle", "star", "cross")
    train, val = list_images(dataset.train), list_images(dataset.val)
    assert (len(train), len(val)) == (6, 3)
    report = scan_samples(train + val, len(dataset.class_names))
    assert len(report.samples) == 9
    assert report.problems == []
    sizes = {(sample.height, sample.width) for sample in report.samples}
    assert len(sizes) == 9
    assert all(72 <= side <= 120 for size in sizes for side in size)


@pytest.mark.parametrize(
    ("name", "draw", "config"),
    [("shapes", draw_dataset, SMALL), ("shapes-cls", draw_class_dataset, SMALL_CLASSES)],
)
def test_shapes_argument_draws_once_and_reuses(tmp_path, monkeypatch, name, draw, config):
    monkeypatch.setattr(draw, "__defaults__", (config,))
    monkeypatch.chdir(tmp_path)
    dataset = load_dataset(name)
    assert (dataset.name, dataset.root) == (name, Path("datasets") / name)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert load_dataset(name) == dataset
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert [path.name for path in Path("datasets").iterdir()] == [name]


@pytest.mark.parametrize(
    ("draw", "config"), [(draw_dataset, SMALL), (draw_class_dataset, SMALL_CLASSES)]
)
def test_equal_seeds_draw_equal_files_and_replace_nothing(tmp_path, draw, config):
    for name in ("a", "b"):
        draw(tmp_path / name, config)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    draw(tmp_path / "c", dataclasses.replace(config, seed=1))
    assert contents(tmp_path / "a") != contents(tmp_path / "c")
    (tmp_path / "theirs").mkdir()
    for name, text in (("theirs", "move it away"), ("a", f"'num_train': {config.num_train}")):
        with pytest.raises(DatasetError, match=text):
            draw(tmp_path / name, dataclasses.replace(config, seed=2))


def test_concurrent_drawing_ends_with_one_set(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=draw_dataset, args=(tmp_path / "shapes", SMALL)) for _ in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
        assert process.exitcode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shapes"]
    assert len(list((tmp_path / "shapes").rglob("*.jpg"))) == 9


def test_unwritable_shapes_folder_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        DatasetError, match=f"{tmp_path}/file/shapes: cannot be written: File exists"
    ):
        draw_dataset(tmp_path / "file" / "shapes", SMALL)


@pytest.fixture(scope="module")
def scenes():
    with ThreadPoolExecutor(2) as pool:
        return list(
            pool.map(lambda index: draw_scene(sample_generator(0, 0, index), (240, 320)), range(60))
        )


def test_scenes_hold_all_classes_with_large_objects(scenes):
    classes = np.concatenate([scene.class_index for scene in scenes])
    assert np.bincount(classes, minlength=5).min() > 20
    sides = np.concatenate([s.boxes_xyxy[:, 2:] - s.boxes_xyxy[:, :2] for s in scenes])
    # The shorter side of most boxes is an eighth of the shorter side of the image or more.
    assert np.mean(sides.min(axis=1) >= 240 / 8) > 0.9
    assert sides.max() < 240 / 2
    counts = [len(scene.class_index) for scene in scenes]
    assert max(counts) >= 6 and min(counts) >= 1
    boxes = [scene.boxes_xyxy for scene in scenes]
    assert sum((pairwise_iou(x, x) > 0.05).sum() > len(x) for x in boxes) >= 10
    all_boxes = np.concatenate(boxes)
    assert all_boxes.min() >= 0 and (all_boxes[:, 2:] <= (320, 240)).all()


def test_outline_set_has_the_same_images_and_other_labels(tmp_path):
    boxes = draw_dataset(tmp_path / "boxes", SMALL)
    outlined = draw_dataset(tmp_path / "outlines", dataclasses.replace(SMALL, outlines=True))
    of_boxes, of_outlines = contents(boxes.parent), contents(outlined.parent)
    assert of_boxes.keys() == of_outlines.keys()
    same = {path for path, content in of_boxes.items() if content == of_outlines[path]}
    assert {path.suffix for path in of_boxes.keys() - same} == {".txt", ".yaml"}
    assert {path.suffix for path in same} == {".jpg"} and len(same) == 9
    assert "outlines" not in boxes.read_text()  # sets of boxes that are drawn already stay valid
    samples = [load_split(load_dataset(yaml), "train") for yaml in (boxes, outlined)]
    np.testing.assert_array_equal(*(part.class_index for part in samples))
    assert samples[0].polygons_norm is None
    assert (samples[1].polygons_norm.num_points > 2).all()


def test_visible_outline_joins_pieces_around_a_cover():
    bar = np.array([(10, 40), (110, 40), (110, 60), (10, 60)], np.float64)
    cover = np.array([(50, 20), (70, 20), (70, 80), (50, 80)], np.float64)
    image = np.zeros((100, 120, 3), np.uint8)
    scene = Scene(image, np.array([0, 1]), np.zeros((2, 4)), (bar, cover))
    under, over = visible_outlines(scene)
    mask = mask_of_runs(runs_of_polygons([under], (100, 120)), (100, 120))
    assert mask[50, 30] and mask[50, 90] and not mask[50, 60]
    assert abs(int(mask.sum()) - 2 * 40 * 20) < 2 * 40 + 4 * 20  # a pixel along each edge
    np.testing.assert_allclose(over.min(axis=0), [50, 20], atol=0.6)


def test_drawn_class_folders_form_an_ordinary_dataset(tmp_path):
    dataset = load_dataset(draw_class_dataset(tmp_path / "shapes-cls", SMALL_CLASSES))
    assert dataset.class_names == tuple(sorted(CLASSES))
    for split, each in (("train", 2), ("val", 1)):
        samples = load_split(dataset, split)
        assert np.bincount(samples.class_index).tolist() == [each] * 10
        assert samples.sizes.min() >= 36 and samples.sizes.max() <= 60


def test_class_image_shows_a_large_shape_in_its_hues():
    parts = []
    for index in range(40):
        outline, hues = list(CLASSES.values())[index % len(CLASSES)]
        size = 80 + index % 7, 90
        image = draw_one_shape(sample_generator(0, 1, index), size, outline, hues)
        assert image.shape == (*size, 3) and image.dtype == np.uint8
        hue, saturation, value = cv2.split(cv2.cvtColor(image, cv2.COLOR_BGR2HSV))
        strong = (saturation > 130) & (value > 60)
        # At least 0.4 of the side across, of which a star or a cross fills about a third.
        assert strong.mean() > 0.02
        low, high = hues
        inside = (hue.astype(int) - low) % 180 <= high - low
        parts.append(inside[strong].mean())
    # What is left are the scribbles of the background, in any colour.
    assert np.mean(parts) > 0.8
