"""Images of any size are detected in by several models of unequal strides, as by one."""

import numpy as np

from backend import autograd
from models.detector import images_to_tensor
from models.inference.image_detector import ImageDetector
from models.inference.predictors import Augmented, Ensemble
from tests.golden_models import drawn_model
from utils.data.image.letterbox import letterbox_to_image
from utils.evaluation.nms import SuppressionSettings, non_max_suppression

SETTINGS = SuppressionSettings(0.1, 0.45, multi_label=False)


def test_models_of_strides_32_and_64_find_what_nms_leaves_of_both():
    members = [
        Augmented(drawn_model("yolov5n.yaml", 1.8)),
        drawn_model("hub/yolov5n6.yaml", 1.8),
    ]
    detector = ImageDetector(Ensemble(members, ["a", "b"]), "cpu", 100, SETTINGS)
    random = np.random.Generator(np.random.Philox(3))
    images = [random.integers(0, 256, (*size, 3), dtype=np.uint8) for size in ((50, 90), (30, 20))]
    found = detector.detect(images)
    for image, detections in zip(images, found, strict=True):
        (view,) = detector.views(image)
        assert not any(side % 64 for side in view.pixels.shape[:2])
        pixels = images_to_tensor(view.pixels.transpose(2, 0, 1)[None].copy(), "cpu")
        with autograd.no_grad():
            rows = [member.decode_above(member(pixels), 0.1)[0] for member in members]
        wanted = non_max_suppression(np.concatenate(rows), SETTINGS)
        boxes_xyxy = letterbox_to_image(wanted.boxes_xyxy, view.placement)
        assert len(wanted.scores) > 1
        np.testing.assert_allclose(detections.scores, wanted.scores, rtol=1e-5)
        np.testing.assert_array_equal(detections.class_index, wanted.class_index)
        np.testing.assert_allclose(detections.boxes_xyxy, boxes_xyxy, atol=1e-3)
