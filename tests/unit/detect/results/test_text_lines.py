"""Labels and table lines as the public detection writes them."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.sources.label_file import label_lines
from duet.utils.data.sources.samples import Sample
from duet.utils.evaluation.label_files import LabelFiles
from tests.coco_reference import ground_truth
from tests.environments import shared_path
from tests.unit.detect.made import make_detections, make_result

BOX = (10, 20, 30, 40, 0.5, 2)


@pytest.fixture(scope="module")
def stored():
    return json.loads(shared_path("golden/inference/info.json").read_text())["save_txt"]


@pytest.mark.parametrize(
    ("scores", "key"), [(False, "lines_in_file_order"), (True, "lines_with_confidence")]
)
def test_label_lines_match_stored_ones_in_order(stored, scores, key):
    detections = make_detections(*stored["detections_x1y1x2y2_conf_class"])
    height, width, _ = stored["image_hwc"]
    assert label_lines(detections, (height, width), scores=scores) == stored[key]


def test_track_id_ends_the_line_and_keeps_all_digits():
    detections = make_detections(BOX, BOX)
    ids = np.array([12345678, 3])
    lines = label_lines(detections, (100, 100), True, ids)
    assert lines == ["2 0.2 0.3 0.2 0.2 0.5 3", "2 0.2 0.3 0.2 0.2 0.5 12345678"]
    assert label_lines(detections, (100, 100), track_ids=ids)[1] == "2 0.2 0.3 0.2 0.2 12345678"


PLACE = BOX[:4]
ODD_NAMES = {"class_names": ("c\rat", "人", "=cmd|calc")}


@pytest.mark.parametrize(
    ("rows", "options", "image", "lines"),
    [
        ([(*PLACE, 0.875, 2), (*PLACE, 0.125, 0)], {}, "a.jpg",
         "a.jpg,person,0.12\na.jpg,cat,0.88\n"),
        ([(*PLACE, 0.875, 2), (*PLACE, 0.125, 0)], {"track_ids": np.array([7, -1])}, "a.jpg",
         "a.jpg,person,0.12,-1\na.jpg,cat,0.88,7\n"),
        # It steers no terminal and holds no formula.
        ([(*PLACE, 0.5, 0), (*PLACE, 0.25, 1)], ODD_NAMES, "a\n\x1b[31m\udce9.jpg",
         "a\\n\\x1b[31m\\xe9.jpg,人,0.25\na\\n\\x1b[31m\\xe9.jpg,c\\rat,0.50\n"),
        ([(*PLACE, 0.5, 2)], ODD_NAMES, "@a.jpg", "'@a.jpg,'=cmd|calc,0.50\n"),
    ],
)  # fmt: skip
def test_table_lists_lowest_score_first_with_two_decimals(rows, options, image, lines):
    assert make_result("", *rows, **options).table_lines(image) == lines


NOTHING = ground_truth([], [])


def sample(path: str) -> Sample:
    labels = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    return Sample(Path(path), 50, 100, *labels)


def test_each_image_with_detections_has_a_label_file(tmp_path, monkeypatch):
    monkeypatch.delattr("os.fsync")  # of thousands of files it takes minutes
    samples = [sample("a/one.jpg"), sample("b/one.jpg"), sample("a/two.jpg")]
    files = LabelFiles(samples, scores=True)
    files.add(2, make_detections(), NOTHING)
    nowhere = (np.nan, 0, 100, 50, 0.75, 3)  # half precision may produce it
    files.add(1, make_detections(nowhere, (0, 0, 100, 50, 0.5, 3)), NOTHING)
    files.add(0, make_detections((10, 10, 30, 20, 0.875, 1), (20, 0, 40, 50, 0.25, 0)), NOTHING)
    (tmp_path / "two.txt").write_text("of an earlier run\n")
    files.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one-2.txt", "one.txt"]
    assert (tmp_path / "one.txt").read_text() == "0 0.3 0.5 0.2 1 0.25\n1 0.2 0.3 0.2 0.2 0.875\n"
    assert (tmp_path / "one-2.txt").read_text() == "3 0.5 0.5 1 1 0.5\n"


def test_detections_wait_for_their_file_as_numbers():
    """300 of each of COCO's 118,287 images take 1 GB; their lines would take 5."""
    files = LabelFiles([sample(f"{number}.jpg") for number in range(100)], scores=True)
    found = make_detections(*[(10, 10, 30.5, 20, number / 300, 1) for number in range(300)])
    tracemalloc.start()
    for image in range(100):
        files.add(image, found, NOTHING)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert held < 40 * 300 * 100


@pytest.mark.parametrize(("folds_case", "second"), [(True, "A-2.txt"), (False, "A.txt")])
def test_names_differing_in_case_get_a_file_each(tmp_path, folds_case, second):
    """Where the file system takes a.txt and A.txt for one file, the second would replace it."""
    files = LabelFiles([sample("a/a.jpg"), sample("b/A.jpg")], scores=False)
    for image in range(2):
        files.add(image, make_detections((0, 0, 100, 50, 0.5, image)), NOTHING)
    files.write(tmp_path, folds_case)
    assert {path.name: path.read_text()[0] for path in tmp_path.iterdir()} == {
        "a.txt": "0", second: "1"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "plural"),
    [
        ("wine glass", "wine glasses"),
        ("bus", "buses"),
        ("bench", "benches"),
        ("person", "persons"),
        ("skis", "skis"),
        ("butter knife", "butter knives"),
        ("sheep", "sheep"),
        ("mouse", "mice"),
        ("butterfly", "butterflies"),
        ("toy", "toys"),
        ("三角", "三角"),
    ],
)
def test_counts_above_one_use_the_plural(name, plural):
    rows = [(*BOX[:5], 0)] * 2
    assert make_result("a.jpg", *rows, class_names=(name,)).words() == f"2 {plural}"
