"""val.py of a segmentation model: boxes and masks, from flags to figures and files."""

import json
from functools import partial

import numpy as np
import pytest

from duet.utils.errors import DatasetError, UserError
from tests.coco_reference import EXACT, as_coco, by_pycocotools_of_files
from tests.small import CLASS_NAMES, with_polygons, write_small_dataset, write_tiny_segmenter

# COCO's decoder warns of NumPy 2's keyword `copy`.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Weights, and a dataset with polygons and boxes."""
    folder = tmp_path_factory.mktemp("inputs")
    data = write_small_dataset(folder, CLASS_NAMES)
    with_polygons(data)
    return write_tiny_segmenter(folder), data


@pytest.fixture
def run(inputs, validate):
    """Run val.py on the inputs, and with more flags."""
    given = ("--weights", inputs[0], "--data", inputs[1], "--img", 64, "--batch-size", 6)
    return partial(validate, *given, "--max-det", 100)


def summaries(result):
    return [list(of.summary().values()) for of in (result.boxes, result.masks)]


def test_val_shows_and_plots_boxes_and_masks(run, capsys):
    done = run(plots=True)
    printed = capsys.readouterr().out
    assert "mAP50-95(B)" in printed and "mAP50-95(M)" in printed
    assert "COCO summary of masks" in printed
    names = {path.name for path in done.folder.iterdir()}
    assert {"BoxPR_curve.png", "MaskF1_curve.png", "confusion_matrix.png"} <= names
    assert {"val_batch0_labels.jpg", "val_batch0_pred.jpg"} <= names
    assert done.result.masks.num_ground_truth.sum() > 10


def test_pycocotools_computes_equal_metrics_from_the_files(run, inputs, tmp_path):
    file = tmp_path / "instances.json"
    file.write_text(json.dumps(as_coco(inputs[1])))
    by_labels = run("--max-det", 300).result
    done = run("--max-det", 300, "--annotations", file, "--save-json")
    np.testing.assert_allclose(summaries(done.result), summaries(by_labels), **EXACT)
    boxes, masks = summaries(done.result)
    found = done.folder / "predictions.json"
    np.testing.assert_allclose(boxes, by_pycocotools_of_files(file, found, "bbox"), **EXACT)
    assert boxes[8] > 0 and masks[8] > 0  # recall: some objects are found
    # A row with a box has the area of the box in pycocotools; without, that of its mask.
    with_boxes = by_pycocotools_of_files(file, found, "segm")
    no_sizes = [0, 1, 2, 6, 7, 8]
    np.testing.assert_allclose(np.array(masks)[no_sizes], with_boxes[no_sizes], **EXACT)
    rows = [{k: v for k, v in row.items() if k != "bbox"} for row in json.loads(found.read_text())]
    found.write_text(json.dumps(rows))
    np.testing.assert_allclose(masks, by_pycocotools_of_files(file, found, "segm"), **EXACT)


def test_mask_label_files_hold_normalised_outlines(run):
    folder = run("--save-txt", "--save-conf", "--conf", 0.1).folder
    lines = [line.split() for path in (folder / "labels").glob("*.txt")
             for line in path.read_text().splitlines()]  # fmt: skip
    assert lines and all(len(line) >= 8 and len(line) % 2 == 0 for line in lines)
    values = np.concatenate([np.array(line[1:], np.float64) for line in lines])
    assert values.min() >= -0.05 and values.max() <= 1.05


def test_legacy_metrics_cover_boxes_and_masks(run, capsys):
    run("--legacy-metric")
    _, _, legacy = capsys.readouterr().out.partition("as YOLOv5 prints")
    assert legacy.index("mAP50-95(B)") < legacy.index("mAP50-95(M)")


def test_single_class_and_chosen_classes_limit_mask_metrics(run):
    single = run("--single-cls").result.masks
    assert single.class_names == ("item",) and single.num_ground_truth[0] > 10
    some = run("--classes", 1).result.masks
    assert (np.flatnonzero(some.num_ground_truth) == 1).all()
    run("--half")


def test_flags_unsupported_for_masks_are_refused_first(run, inputs, tmp_path):
    for flags, text in (
        (("--tile", 64), "--tile: masks"),
        (("--augment",), "--augment"),
        (("--weights", inputs[0], inputs[0]), "cannot be combined"),
    ):
        with pytest.raises(UserError, match=text):
            run(*flags)
    assert not (tmp_path / "runs").exists()


def test_box_labels_are_refused_without_mask_annotations(run, inputs, tmp_path):
    data = write_small_dataset(tmp_path / "boxes", CLASS_NAMES)
    with pytest.raises(DatasetError, match="its task is segment; --data .*masks need polygons"):
        run("--data", data)
    content = as_coco(inputs[1])  # of the same images
    file = tmp_path / "instances.json"
    file.write_text(json.dumps(content))
    masks = run("--data", data, "--annotations", file).result.masks
    assert masks.num_ground_truth.sum() == len(content["annotations"])
