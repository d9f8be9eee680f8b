"""The check finds every planted error and nothing else, in any format."""

from pathlib import Path

import numpy as np
import pytest

from tests.unit.data.check.planted import EXPECTED, LEFT_OUT, pattern, write_planted
from utils.data.check.advice import first_steps
from utils.data.check.check_page import check_page
from utils.data.check.checking import check_dataset
from utils.data.check.corrected_copy import write_corrected
from utils.data.check.figures import measure
from utils.data.check.summary import summary_lines
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import load_split


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return write_planted(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def check(planted):
    return check_dataset(load_dataset(planted))


def found_in(check, root):
    """Kind, file from the dataset's folder on, and place in it, of each finding."""
    found = []
    for finding in check.findings:
        where, _, place = finding.where.partition(".txt: ")
        where = f"{where}.txt" if place else where
        name = Path(where).relative_to(root).as_posix() if where.startswith(str(root)) else where
        found.append((finding.kind, name, place))
    return found


def test_every_planted_error_is_found_once_and_nothing_else(check, planted):
    found = found_in(check, planted.parent)
    assert set(found) == EXPECTED and len(found) == len(EXPECTED)


def test_the_images_that_are_left_out_are_those_that_training_leaves_out(check, planted):
    assert {image.source.path.name for image in check.left_out} == LEFT_OUT
    dataset = load_dataset(planted)
    for split in ("train", "val"):
        used = [x.source.path for x in check.images if x.split == split and x.is_used]
        assert used == [sample.image_path for sample in load_split(dataset, split)]


def write_dataset(folder, labels, yaml):
    for number, (name, text) in enumerate(labels.items()):
        for kind in ("images", "labels"):
            (folder / kind / name).parent.mkdir(parents=True, exist_ok=True)
        pattern(number).save(folder / "images" / f"{name}.png")
        (folder / "labels" / f"{name}.txt").write_text(text)
    (folder / "data.yaml").write_text(yaml)
    return folder / "data.yaml"


def figures_of(check, image_size=64):
    return measure(check, image_size, np.array([[16.0, 16.0]]), 4.0)


def test_a_dataset_without_a_usable_image_is_reported_all_the_same(tmp_path):
    data = write_dataset(tmp_path, {"train/a": "x\n", "val/b": "9 9 9 9 9\n"},
                         "train: images/train\nval: images/val\nnames: [a]\n")  # fmt: skip
    check = check_dataset(load_dataset(data))
    assert [found.kind for found in check.findings] == [
        "broken_label",
        "unknown_class",
        "unused_class",
    ]
    figures = figures_of(check)
    assert figures.anchors is None and figures.num_left_out == (1, 1)
    steps = first_steps(check, figures, "--data x")
    assert "2 images, 100 % of all" in steps[0].reason
    assert "left out of training" in check_page(check, figures, steps)
    assert any("left out" in line for line in summary_lines(check, figures, steps))


def test_a_validation_of_the_training_images_is_one_finding_not_one_an_image(tmp_path):
    labels = {"a": "0 0.5 0.5 0.5 0.5\n", "b": "0 0.5 0.5 0.5 0.5\n"}
    data = write_dataset(tmp_path, labels, "train: images\nval: images\nnames: [a]\n")
    check = check_dataset(load_dataset(data))
    assert [(x.kind, x.text) for x in check.findings] == [
        ("same_images", "val names the images of train")
    ]
    assert len(check.images) == 2 and check.has_problems
    assert first_steps(check, figures_of(check), "")[0].title == "Give validation images of its own"


def test_sizes_are_those_that_training_sees(tmp_path):
    # 96x64 px; at --img 48 half of it: sides of 24x8, 6x3 and 2x16 px.
    data = write_dataset(
        tmp_path,
        {"a": "0 0.5 0.5 0.5 0.25\n1 0.5 0.5 0.125 0.09375\n", "b": "0 0.5 0.5 0.04166667 0.5\n"},
        "train: images\nnames: [a, b, c]\n",
    )
    check = check_dataset(load_dataset(data, splits=("train",)))
    figures = measure(check, 48, np.array([[16.0, 16.0], [6.0, 3.0]]), 4.0)
    assert figures.small == pytest.approx((1 / 3, 2 / 3))  # 3 is not below 3, nor 8 below 8
    assert [found.small for found in figures.classes] == [0.5, 1.0, 0.0]
    assert figures.size_steps == pytest.approx((1 / 3, 1 / 3, 1 / 3, 0, 0, 0, 0))
    assert [(x.num_images, x.num_objects) for x in figures.classes] == [
        ((2,), (2,)), ((1,), (1,)), ((0,), (0,)),
    ]  # fmt: skip
    assert figures.anchors.best_possible_recall == pytest.approx(2 / 3)  # 2x16 is out of reach
    spreads = {spread.name: spread.values for spread in figures.object_spreads}
    assert spreads["width"][2] == pytest.approx(12, abs=1e-4)
    assert spreads["shorter side at --img"][0] == pytest.approx(2, abs=1e-4)
    shown = {spread.name: spread.values for spread in figures.image_spreads}
    assert shown["height at --img"] == (32,) * 5 and shown["width : height"] == (1.5,) * 5
    assert "add --split 0.8" in [step.how for step in first_steps(check, figures, "")]


def test_what_costs_most_is_advised_first(planted, check):
    figures = figures_of(check)
    titles = [step.title for step in first_steps(check, figures, f"--data {planted}")]
    assert titles == [
        "Take training images out of validation",
        "Repair the images that are left out",
        "Join classes that are one",
    ]


def test_a_thousand_classes_of_long_names_stay_on_a_small_page(tmp_path):
    lines = "".join(f"{number} 0.5 0.5 0.5 0.5\n" for number in range(600))
    names = "".join(f"- n{number}{'x' * 300}\n" for number in range(1000))
    data = write_dataset(tmp_path, {"a": lines}, f"train: images\nnames:\n{names}")
    check = check_dataset(load_dataset(data, splits=("train",)))
    figures = figures_of(check)
    page = check_page(check, figures, first_steps(check, figures, ""))
    assert page.count("<image ") == 240 and len(page) < 5 << 20
    assert "x" * 100 not in page


@pytest.mark.parametrize("image_size", [1, 100_000])
def test_any_image_size_has_its_figures(check, image_size):
    figures = figures_of(check, image_size)
    assert sum(figures.size_steps) == pytest.approx(1)
    assert first_steps(check, figures, "")


def test_an_annotated_dataset_is_checked_like_one_of_label_files(tmp_path):
    write_voc(tmp_path)
    check = check_dataset(load_dataset(tmp_path))
    found = [(x.kind, Path(x.where.partition(": ")[0]).name, x.where.partition(": ")[2], x.split)
             for x in check.findings]  # fmt: skip
    assert found == [
        ("missing_image", "gone.png", "", "train"),
        ("other_shape", "Annotations", "b.png", "train"),
        ("out_of_range", "Annotations", "c.png: object 1", "train"),
        ("zero_area", "Annotations", "a.png: object 3", "train"),
        ("repeated_object", "Annotations", "a.png: object 2", "train"),
        ("unused_image", "nobody.png", "", ""),
        ("not_in_train", "class 0, 'cat'", "", "train"),
    ]
    assert [image.is_used for image in check.images] == [True, False, False, False, True]
    write_corrected(check, tmp_path / "fixed")
    copy = load_dataset(tmp_path / "fixed" / f"{tmp_path.resolve().stem}.yaml")
    (sample,) = load_split(copy, "train")
    assert copy.class_names == ("cat", "dog")
    assert sample.class_index.tolist() == [1]
    assert sample.boxes_cxcywh_norm.tolist() == [pytest.approx([0.5, 0.5, 0.5, 0.5])]


def write_voc(folder):
    """Write a VOC dataset whose images but the one of val have each a fault."""
    box = "<object><name>{}</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax>" \
          "<ymax>{}</ymax></bndbox></object>"  # fmt: skip
    good = box.format("dog", 24, 16, 72, 48)
    objects = {
        "a": good + good + box.format("cat", 9, 9, 9, 20),
        "b": good,
        "c": box.format("cat", 24, 16, 720, 48),
        "gone": good,
        "d": good + box.format("cat", 9, 9, 40, 40),
    }
    for place in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / place).mkdir(parents=True)
    for number, (name, text) in enumerate(objects.items()):
        size = (64, 96) if name == "b" else (96, 64)
        if name != "gone":
            pattern(number, size).save(folder / f"JPEGImages/{name}.png")
        (folder / f"Annotations/{name}.xml").write_text(
            f"<annotation><filename>{name}.png</filename><size><width>96</width>"
            f"<height>64</height><depth>3</depth></size>{text}</annotation>"
        )
    pattern(9).save(folder / "JPEGImages/nobody.png")
    (folder / "ImageSets/Main/train.txt").write_text("a\nb\nc\ngone\n")
    (folder / "ImageSets/Main/val.txt").write_text("d\n")


def test_boxes_among_outlines_are_worth_knowing_and_no_problem(tmp_path):
    yaml = "train: images\nnames: [a]\n"
    labels = {"a": "0 0.5 0.5 0.5 0.5\n0 0.1 0.1 0.5 0.1 0.3 0.9\n", "b": "0 0.5 0.5 0.2 0.2\n"}
    check = check_dataset(load_dataset(write_dataset(tmp_path, labels, yaml), splits=("train",)))
    assert [(x.kind, x.text) for x in check.findings] == [("no_outline", "2 of 3 objects")]
    assert not check.has_problems
