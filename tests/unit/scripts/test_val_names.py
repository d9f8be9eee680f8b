"""val.py where the dataset numbers its classes otherwise than the weights do, or has fewer."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from duet.utils.errors import UserError
from tests.onnx_files import CLASSES, write_detector
from tests.small import (
    tiny_checkpoint,
    tiny_classifier,
    tiny_segmenter,
    with_polygons,
    write_checkpoint,
    write_class_folders,
    write_small_dataset,
)

NAMES = ("circle", "square", "triangle", "star", "cross")
ORDER = np.array([3, 0, 4, 1, 2])  # the other dataset's number of each class


def named(checkpoint, names=NAMES):
    header = dataclasses.replace(checkpoint.header, class_names=tuple(names))
    return dataclasses.replace(checkpoint, header=header)


def renumbered(data: Path, numbers: np.ndarray, names: list[str]) -> Path:
    """Copy a dataset with other class numbers; -1 leaves a class's objects out."""
    copy = Path(shutil.copytree(data.parent, data.parent.with_name(f"{len(names)}-{names[0]}")))
    for path in (copy / "labels").glob("*/*.txt"):
        rows = [line.split(" ", 1) for line in path.read_text().splitlines()]
        kept = [f"{numbers[int(label)]} {rest}" for label, rest in rows if numbers[int(label)] >= 0]
        path.write_text("\n".join(kept))
    document = {**yaml.safe_load((copy / data.name).read_text()), "names": names}
    (copy / data.name).write_text(yaml.safe_dump(document))
    return copy / data.name


@pytest.fixture
def run(validate):
    """Run val.py on weights and data; return its result, and note its folder."""

    def result_of(weights, data, *flags):
        done = validate("--weights", weights, "--data", data, *flags)
        result_of.folder = done.folder
        return done.result

    return result_of


@pytest.fixture
def boxes(tmp_path):
    checkpoint = named(tiny_checkpoint(tmp_path))
    return write_checkpoint(tmp_path / "a.safetensors", checkpoint), write_small_dataset(tmp_path)


@pytest.fixture(params=[tiny_checkpoint, tiny_segmenter], ids=["boxes", "masks"])
def inputs(request, tmp_path):
    data = write_small_dataset(tmp_path)
    with_polygons(data)
    weights = write_checkpoint(tmp_path / "a.safetensors", named(request.param(tmp_path)))
    return weights, data


def figures(result):
    parts = (result.boxes, result.masks) if hasattr(result, "masks") else (result,)
    return [[*part.summary().values(), *part.num_ground_truth] for part in parts]


def test_reordered_classes_are_matched_by_name(inputs, run, caplog):
    weights, data = inputs
    flags = ("--img", 64, "--conf", 0.01, "--save-json", "--save-txt")
    first = figures(run(weights, data, *flags))
    written = [path for kind in ("*.txt", "*.json") for path in run.folder.rglob(kind)]
    files = {path: path.read_bytes() for path in written}
    assert len(files) > 1 and "matched by name" not in caplog.text
    caplog.set_level("INFO")
    other = renumbered(data, ORDER, [NAMES[i] for i in np.argsort(ORDER)])
    second = figures(run(weights, other, *flags))
    assert "matched by name and have the numbers of the weights, which know 5" in caplog.text
    np.testing.assert_array_equal(second, first)
    assert np.nanmax(first[0][:12]) > 0
    assert {path: path.read_bytes() for path in files} == files


def test_dataset_of_some_classes_scores_others_as_empty(inputs, run):
    weights, data = inputs
    some = np.array([1, -1, -1, 0, -1])
    fewer = renumbered(data, some, ["star", "circle"])
    without = renumbered(data, np.where(some >= 0, np.arange(5), -1), list(NAMES))
    one, other = (run(weights, each, "--img", 64) for each in (fewer, without))
    np.testing.assert_array_equal(figures(one), figures(other))
    assert (one.boxes if hasattr(one, "boxes") else one).class_names == NAMES


def test_annotations_keep_their_category_ids(tmp_path, boxes, run):
    weights, data = boxes
    images = sorted((data.parent / "images" / "val").iterdir())
    content = {
        "images": [{"id": n, "file_name": path.name} for n, path in enumerate(images)],
        "categories": [{"id": 7, "name": "star"}, {"id": 9, "name": "circle"}],
        "annotations": [{"id": 1, "image_id": 0, "category_id": 9, "bbox": [5, 5, 30, 30]}],
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    entry = {"images": str(data.parent / "images/val"), "annotations": "a.json"}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({"train": entry, "val": entry}))
    result = run(weights, tmp_path / "a.yaml", "--img", 64, "--save-json", "--conf", 0.001)
    assert result.num_ground_truth.tolist() == [1, 0, 0, 0, 0]
    rows = json.loads((run.folder / "predictions.json").read_text())
    assert {row["category_id"] for row in rows} == {7, 9}


def test_classes_unknown_to_the_weights_are_named(tmp_path, boxes, run):
    weights, data = boxes
    other = renumbered(data, np.arange(5), ["circle", "square", "heart", "star", "moon"])
    with pytest.raises(UserError, match=r"a.safetensors does not know: \['heart', 'moon'\]"):
        run(weights, other, "--img", 64)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("names", [(), [f"class{n}" for n in range(5)], "01234"])
def test_weights_without_names_are_scored_by_number(tmp_path, boxes, run, names):
    weights, data = boxes
    unnamed = named(tiny_checkpoint(tmp_path), names)
    unnamed = write_checkpoint(tmp_path / "b.safetensors", unnamed)
    one, other = (run(each, data, "--img", 64) for each in (weights, unnamed))
    assert other.class_names == NAMES
    np.testing.assert_array_equal(figures(one), figures(other))
    fewer = renumbered(data, np.array([0, 1, -1, -1, -1]), ["circle", "square"])
    with pytest.raises(UserError, match="has 2 classes, .* has 5 without names; the numbers must"):
        run(unnamed, fewer, "--img", 64)


def test_exported_file_is_scored_by_name(tmp_path, run):
    data = write_small_dataset(tmp_path)
    names = ["dog", "cat"]
    assert tuple(names) == CLASSES[::-1]
    data = renumbered(data, np.array([0, 0, 1, -1, -1]), names)
    result = run(write_detector(tmp_path / "a.onnx"), data)
    assert result.class_names == CLASSES
    cats = sum(
        line.startswith("1 ")
        for path in (data.parent / "labels" / "val").iterdir()
        for line in path.read_text().splitlines()
    )
    assert cats and result.num_ground_truth[0] == cats


def test_class_folders_of_some_classes_are_scored_by_name(tmp_path, run):
    names = sorted(NAMES)
    weights = write_checkpoint(tmp_path / "a.safetensors", named(tiny_classifier(tmp_path), names))
    write_class_folders(tmp_path / "all", 0, 10, names)
    whole = run(weights, tmp_path / "all")
    for name in names[::2]:
        shutil.rmtree(tmp_path / "all" / "val" / name)
    part = run(weights, tmp_path / "all")
    assert part.class_names == whole.class_names == tuple(names)
    np.testing.assert_array_equal(part.class_top1[1::2], whole.class_top1[1::2])
    (tmp_path / "all" / "val" / names[1]).rename(tmp_path / "all" / "val" / "heart")
    with pytest.raises(UserError, match=r"does not know: \['heart'\]"):
        run(weights, tmp_path / "all")


def test_renaming_in_the_yaml_matches_another_class_name(boxes, run):
    weights, data = boxes
    other = renumbered(data, np.arange(5), ["circle", "square", "heart", "star", "cross"])
    other.write_text(other.read_text() + "merge: {heart: triangle}\n")
    one, renamed = (run(weights, each, "--img", 64) for each in (data, other))
    np.testing.assert_array_equal(figures(one), figures(renamed))
