"""NMS of rows without objectness against rows stored from the public package.

With 1 in place of the objectness a score is the class score, bit for bit. The package moves classes
apart by offsets of 7680 px in float32, which rounds a box by up to 0.03 px, so two boxes whose IoU
is at the threshold may be judged otherwise: none is in these sets.
"""

import numpy as np
import pytest

from duet.utils.evaluation.nms import non_max_suppression
from duet.utils.geometry.detections import SuppressionSettings
from tests.golden_models import info, stored

SETS = ("nc80", "nc3", "nc1", "nc3_one_empty")
# max_nms_40 has another limit on candidates; iou_1 keeps boxes of rounding alone.
LEFT_OUT = {"max_nms_40", "iou_1"}
NAMES = {"conf_thres": "confidence_threshold", "iou_thres": "iou_threshold",
         "agnostic": "class_agnostic", "max_det": "max_detections",
         "multi_label": "multi_label"}  # fmt: skip
DEFAULTS = {"confidence_threshold": 0.25, "iou_threshold": 0.45, "multi_label": False}


def settings_of(options):
    found = {NAMES[name]: value for name, value in options.items() if name in NAMES}
    if "classes" in options:
        found["classes"] = tuple(options["classes"])
    return SuppressionSettings(**{**DEFAULTS, **found})


@pytest.mark.parametrize("name", SETS)
def test_rows_are_the_stored_ones(name):
    details, wanted = info("anchor_free/inference"), stored("anchor_free/inference/nms_outputs")
    images = stored("anchor_free/inference/nms_inputs")[name]
    compared = 0
    for case in sorted(details["rows"][name].keys() - LEFT_OUT):
        settings = settings_of(details["cases"][case])
        for index, decoded in enumerate(images):
            rows = np.insert(decoded.T, 4, np.float32(1), axis=1)
            found = non_max_suppression(np.ascontiguousarray(rows, np.float32), settings)
            expected = wanted[f"{name}_{case}_i{index}"]
            assert len(found.scores) == len(expected), case
            np.testing.assert_array_equal(found.scores, expected[:, 4])
            np.testing.assert_array_equal(found.class_index, expected[:, 5])
            np.testing.assert_allclose(found.boxes_xyxy, expected[:, :4], rtol=0, atol=1e-4)
            compared += len(expected)
    assert compared > 100
