"""val.py from flags to files: what reaches the figures, and what it refuses."""

import json
import logging
import math
from functools import partial

import numpy as np
import pytest
import yaml

from duet.backend import nn
from duet.models.evaluation import validation
from duet.models.inference.image_detector import ImageDetector
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import UserError
from duet.utils.evaluation.coco.per_image import FILE, read_per_image
from tests.coco_reference import EXACT, as_coco, by_pycocotools_of_files
from tests.environments import python
from tests.small import (
    CLASS_NAMES,
    initial_model,
    untrained,
    write_checkpoint,
    write_class_folders,
    write_small_dataset,
    write_small_model,
    write_tiny_classifier,
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Weights, a dataset, COCO annotations of it, every third object a crowd, their number."""
    folder = tmp_path_factory.mktemp("inputs")
    data = write_small_dataset(folder)
    dataset = load_dataset(data)
    model = initial_model(write_small_model(folder), 0, len(dataset.class_names))
    write_checkpoint(folder / "weights.safetensors", untrained(model, dataset.class_names))
    content = as_coco(data)
    for index, found in enumerate(content["annotations"]):
        del found["segmentation"]
        found |= {"area": 2000.0, "iscrowd": int(index % 3 == 0)}
        found["category_id"] += 70
    for category in content["categories"]:
        category["id"] += 70
    (folder / "instances.json").write_text(json.dumps(content))
    return folder, data, len(content["annotations"])


@pytest.fixture
def run(inputs, validate):
    """Run val.py on the inputs, and with more flags."""
    given = ("--weights", inputs[0] / "weights.safetensors", "--data", inputs[1])
    return partial(validate, *given, "--img", 64, "--conf", 0)


def total_labels(printed):
    row = next(line.split() for line in printed.splitlines() if line.split()[:1] == ["all"])
    return int(row[2])


def rows_of(validated):
    return json.loads((validated.folder / "predictions.json").read_text())


def test_annotations_provide_crowds_areas_and_ids(run, capsys, inputs):
    folder, _, num_objects = inputs
    done = run("--annotations", folder / "instances.json", "--square", "--save-json")
    printed = capsys.readouterr().out
    assert total_labels(printed) == num_objects - -(-num_objects // 3)  # crowds are no labels
    assert "APsmall  -" in printed and "APmedium -" not in printed  # 2,000 square pixels
    rows = rows_of(done)
    assert {row["image_id"] for row in rows} == set(range(500, 506))
    per_image, names, classes = read_per_image(done.folder / FILE)
    assert (len(names), len(classes)) == per_image.objects.shape == (6, 5)
    assert per_image.objects.sum() == total_labels(printed)
    assert min(row["category_id"] for row in rows) >= 70


def as_dataset(folder, samples_json):
    """Return a YAML of the images of `inputs` that takes its labels from an instances JSON."""
    entry = {"images": str(folder / "shapes/images/val"), "annotations": str(samples_json)}
    path = samples_json.parent / "coco.yaml"
    path.write_text(yaml.safe_dump({"train": entry, "val": entry}))
    return path


def summary_of(validated):
    return list(validated.result.summary().values())


def test_coco_dataset_matches_pycocotools_on_its_file(run, caplog, inputs):
    caplog.set_level(logging.INFO)
    file = inputs[0] / "instances.json"
    done = run("--data", as_dataset(inputs[0], file), "--save-json")
    assert "crowds" in caplog.text and f"are taken from {file}" in caplog.text
    assert "array(" not in repr(done)  # a notebook shows it after `val(...)`
    expected = by_pycocotools_of_files(file, done.folder / "predictions.json", "bbox")
    summary = summary_of(done)
    np.testing.assert_allclose(summary, expected, **EXACT)
    assert expected[1] > 1e-4 and expected[8] > 0.01  # AP50 and recall: some objects are found
    np.testing.assert_array_equal(summary_of(run("--annotations", file)), summary)
    labels = summary_of(run())  # of which none is a crowd
    assert not np.array_equal(labels, summary, equal_nan=True)


def test_file_usable_only_for_labels_is_reported(run, capsys, caplog, inputs, tmp_path):
    content = json.loads((inputs[0] / "instances.json").read_text())
    content["annotations"][1]["area"] = "large"
    (tmp_path / "a.json").write_text(json.dumps(content))
    run("--data", as_dataset(inputs[0], tmp_path / "a.json"))
    assert "crowds and areas of outlines are ignored" in caplog.text
    assert "area 'large'" in caplog.text
    crowds = -(-inputs[2] // 3)
    assert total_labels(capsys.readouterr().out) == inputs[2] - crowds


def test_single_class_merges_all_classes(run, capsys, inputs):
    rows = rows_of(run("--single-cls", "--save-json"))
    printed = capsys.readouterr().out
    assert total_labels(printed) == inputs[2]
    lines = [line.split() for line in printed.splitlines()]
    assert [line[0] for line in lines if line[1:2] == ["6"]] == ["all", "item"]
    assert rows and len({row["category_id"] for row in rows}) == 1


def test_tiles_cover_each_image_at_its_own_size(run, monkeypatch, capsys, inputs):
    shapes, predict = [], ImageDetector.predict

    def noted(self, views):
        shapes.extend(view.placement.original_size for view in views)
        return predict(self, views)

    monkeypatch.setattr(ImageDetector, "predict", noted)
    flags = ("--annotations", inputs[0] / "instances.json", "--save-json", "--legacy-metric")
    rows = rows_of(run("--tile", 64, *flags, "--classes", 0, "square"))
    printed = capsys.readouterr().out
    sizes = [(x.height, x.width) for x in load_split(load_dataset(inputs[1]), "val")]
    expected = []
    for height, width in sizes:
        if max(height, width) > 64:
            tiles = (-(-max(side - 64, 0) // 51) + 1 for side in (height, width))  # 13 px overlap
            expected += math.prod(tiles) * [(min(height, 64), min(width, 64))]
        expected.append((height, width))
    assert shapes == expected and len(shapes) > len(sizes)
    assert "results in" in printed and total_labels(printed) < inputs[2]
    assert {row["image_id"] for row in rows} <= set(range(500, 506))
    assert {row["category_id"] for row in rows} <= {70, 71}


def test_ensembles_and_augmentation_reach_the_metrics(run, monkeypatch, capsys, inputs):
    weights, found = str(inputs[0] / "weights.safetensors"), []
    evaluate = validation.evaluate

    def noted(config, evaluation, *arguments):
        found.append(evaluation.model)
        return evaluate(config, evaluation, *arguments)

    monkeypatch.setattr(validation, "evaluate", noted)
    for flags in ((), ("--weights", weights, weights, "--augment", "--half")):
        run(*flags)
        assert total_labels(capsys.readouterr().out) == inputs[2]
    plain, joined = found
    assert "model.0.bn.running_var" in nn.state_arrays(plain)  # figures stay as in training
    assert [type(member).__name__ for member in joined.members] == ["Augmented", "Augmented"]


def test_onnx_backend_matches_the_bound_framework(run, capsys, inputs, tmp_path):
    folder, data, _ = inputs
    run()
    wanted, _, _ = capsys.readouterr().out.partition("6 images in")
    flags = ["--weights", folder / "weights.safetensors", "--data", data, "--img", 64, "--conf", 0,
             "--workers", 0, "--backend", "onnx", "--project", tmp_path]  # fmt: skip
    done = python("val.py", *flags)
    assert done.returncode == 0, done.stderr
    assert "mAP50-95" in wanted and wanted in done.stdout and "ONNX Runtime" in done.stdout


def test_unsuitable_data_is_refused_before_the_work(run, inputs, tmp_path):
    weights, other = inputs[0] / "weights.safetensors", tmp_path / "other.json"
    other.write_text(json.dumps({"images": [], "annotations": [], "categories": []}))
    with pytest.raises(UserError, match="no image is named .*use the file of this split"):
        run("--annotations", other)
    path = inputs[1].parent / "one.yaml"
    path.write_text(inputs[1].read_text().replace("names:", "names: [a]\nformerly:"))
    with pytest.raises(UserError, match="one.yaml has classes that --weights .* does not know: "):
        run("--data", path, "--weights", weights, weights)
    names = load_dataset(inputs[1]).class_names
    with pytest.raises(UserError, match="folders named for their classes.*--task classify"):
        run("--data", write_class_folders(tmp_path / "classes", names=names))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--iou 0.5", "--iou: classifiers predict no boxes; leave it out"),
        ("--iou 0.5 --task speed", "--iou: classifiers predict no boxes; leave it out"),
        ("--square", "--square: classification images are always square"),
        ("--single-cls", "--single-cls: a classifier with one class has nothing to distinguish"),
    ],
)
def test_detection_flags_are_refused_for_a_classifier(validate, inputs, tmp_path, flags, reason):
    data = (
        inputs[1]
        if flags == "--single-cls"
        else write_class_folders(tmp_path / "classes", 0, 5, CLASS_NAMES)
    )
    command = ("--data", data, "--weights", write_tiny_classifier(tmp_path))
    with pytest.raises(UserError, match=reason):
        validate(*command, *flags.split())
