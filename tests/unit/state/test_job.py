"""utils/state/job.py: the digest of images and labels by which a run knows its data again."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.sources.samples import Sample
from duet.utils.errors import UserError
from duet.utils.polygons import Polygons
from duet.utils.state.job import TrainData, describe_samples, require_equal_data
from tests.unit.weights.test_checkpoint import HEADER

BOXES = np.array([[0.5, 0.5, 0.25, 0.25]], np.float32)
OUTLINE = Polygons(np.array([[0.4, 0.4], [0.6, 0.4], [0.5, 0.6]], np.float32), np.array([0, 3]))
FIRST = Sample(Path("a/1.jpg"), 40, 60, np.array([1]), BOXES, polygons_norm=OUTLINE)


def test_a_digest_is_of_names_sizes_labels_and_outlines_but_not_of_folders():
    found = describe_samples([FIRST])
    assert describe_samples([dataclasses.replace(FIRST, image_path=Path("b/1.jpg"))]) == found
    moved = dataclasses.replace(OUTLINE, points_xy=OUTLINE.points_xy + np.float32(1e-3))
    changes = {
        "image_path": Path("a/2.jpg"), "height": 41, "class_index": np.array([2]),
        "boxes_cxcywh_norm": BOXES + np.float32(1e-3), "polygons_norm": moved,
    }  # fmt: skip
    for name, value in changes.items():
        other = describe_samples([dataclasses.replace(FIRST, **{name: value})])
        assert other != found
        assert (other["sha256"] == found["sha256"]) == (name == "polygons_norm")
    assert describe_samples([dataclasses.replace(FIRST, polygons_norm=None)])["polygons"] == ""


def test_a_run_goes_on_with_its_own_data_alone():
    data = TrainData(HEADER.class_names, [FIRST], [FIRST])
    header = dataclasses.replace(HEADER, progress={"data": data.digests})
    require_equal_data(header, data)
    with pytest.raises(UserError, match="classes of --data have changed"):
        require_equal_data(header, TrainData(("other",), [FIRST], [FIRST]))
    with pytest.raises(UserError, match=r"split val, .* \(2 images now, 1 then\)"):
        require_equal_data(header, TrainData(HEADER.class_names, [FIRST], [FIRST, FIRST]))
