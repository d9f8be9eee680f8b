"""The built-in dataset: complete, repeatable, and labelled as it is drawn."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest

from utils.boxes import pairwise_iou
from utils.data.randomness import sample_generator
from utils.data.shapes import dataset as shapes
from utils.data.shapes.dataset import ShapesConfig, draw_dataset
from utils.data.shapes.scene import OUTLINES, draw_scene
from utils.data.sources.dataset import load_dataset
from utils.data.sources.image_files import list_images
from utils.data.sources.labels import scan_samples
from utils.errors import DatasetError

SMALL = ShapesConfig(num_train=6, num_val=3, image_side=96)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.*")}


def test_the_set_is_an_ordinary_dataset(tmp_path):
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


def test_the_argument_shapes_draws_once_and_reuses_the_set(tmp_path, monkeypatch):
    monkeypatch.setattr(draw_dataset, "__defaults__", (SMALL,))
    dataset = load_dataset("shapes", image_root=tmp_path)
    assert dataset.root == tmp_path / "shapes"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert load_dataset("shapes", image_root=tmp_path) == dataset
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shapes"]


def test_the_same_seed_draws_the_same_files(tmp_path):
    for name in ("a", "b"):
        draw_dataset(tmp_path / name, SMALL)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    draw_dataset(tmp_path / "c", ShapesConfig(num_train=6, num_val=3, image_side=96, seed=1))
    assert contents(tmp_path / "a") != contents(tmp_path / "c")


def test_an_interrupted_drawing_leaves_nothing_and_is_redone(tmp_path, monkeypatch):
    def interrupt(generator, size):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shapes, "draw_scene", interrupt)
        with pytest.raises(KeyboardInterrupt):
            draw_dataset(tmp_path / "shapes", SMALL)
    assert list(tmp_path.iterdir()) == []
    assert draw_dataset(tmp_path / "shapes", SMALL).is_file()


def test_processes_that_draw_at_once_end_with_one_set(tmp_path):
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


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "shapes").mkdir()
    with pytest.raises(DatasetError, match="move it away"):
        draw_dataset(tmp_path / "shapes", SMALL)
    draw_dataset(tmp_path / "other", SMALL)
    with pytest.raises(DatasetError, match="'num_train': 6"):
        draw_dataset(tmp_path / "other", ShapesConfig())


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match=f"{tmp_path}/file/shapes: .* cannot be drawn"):
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
    assert max(counts) >= 6
    assert min(counts) >= 1


def test_boxes_lie_inside_the_image(scenes):
    for scene in scenes:
        assert scene.boxes_xyxy.min() >= 0
        assert (scene.boxes_xyxy[:, 2] <= 320).all()
        assert (scene.boxes_xyxy[:, 3] <= 240).all()


def test_boxes_overlap_in_some_scenes(scenes):
    overlapping = [
        (pairwise_iou(scene.boxes_xyxy, scene.boxes_xyxy) > 0.05).sum() > len(scene.boxes_xyxy)
        for scene in scenes
    ]
    assert sum(overlapping) >= 10


def test_a_box_is_tight_around_its_object(monkeypatch):
    monkeypatch.setattr("utils.data.shapes.scene.MAX_OBJECTS", 1)
    monkeypatch.setattr("utils.data.shapes.scene.add_noise", lambda generator, image: image)
    monkeypatch.setattr(
        "utils.data.shapes.scene.draw_backdrop",
        lambda generator, size: np.zeros((*size, 3), np.uint8),
    )
    found = 0
    for index in range(20):
        scene = draw_scene(sample_generator(1, 0, index), (200, 200))
        for left, top, right, bottom in scene.boxes_xyxy.astype(int):
            drawn = scene.image.any(axis=2)
            rows, columns = np.flatnonzero(drawn.any(1)), np.flatnonzero(drawn.any(0))
            edges = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
            # An anti-aliased edge pixel is drawn, but belongs to the box only if half covered.
            np.testing.assert_allclose(edges, [left, top, right, bottom], atol=1)
            found += 1
    assert found >= 18


def test_outlines_fit_the_unit_circle_and_differ():
    areas = {name: cv2.contourArea(points.astype(np.float32)) for name, points in OUTLINES.items()}
    for name, points in OUTLINES.items():
        assert np.hypot(*points.T).max() <= 1.05, name
    # Square sqrt(2)**2, triangle 3 * sqrt(3) / 4, circle 0.81 pi; the cross is 5 squares of 0.6
    # and the rest of its arms.
    assert areas["square"] == pytest.approx(2)
    assert areas["triangle"] == pytest.approx(1.299, abs=1e-3)
    assert areas["circle"] == pytest.approx(0.81 * np.pi, rel=0.01)
    assert areas["cross"] == pytest.approx(0.6**2 + 4 * 0.6 * 0.7)
    assert 0.5 < areas["star"] < areas["triangle"]
