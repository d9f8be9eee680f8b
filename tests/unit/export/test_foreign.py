"""Files of the public exporter that segment or classify: known by their graphs, or refused."""

from __future__ import annotations

import numpy as np
import pytest

from duet.models.export.exported import ExportedPredictor
from duet.utils.errors import UserError
from duet.utils.export.metadata import LOGITS, MASK_ROWS, NORMALIZED
from duet.utils.export.onnx import OnnxRuntime, read_onnx
from duet.utils.export.opening import open_runtime
from duet.utils.geometry.detections import SuppressionSettings
from tests.onnx_files import SIDE, own_texts, write_classifier, write_segmenter

MEANS, DEVIATIONS = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def test_a_public_segmenter_is_known_by_its_outputs(tmp_path):
    metadata = read_onnx(write_segmenter(tmp_path / "a.onnx"))[1]
    assert (metadata.head, metadata.output) == ("Segment", MASK_ROWS)
    assert metadata.class_names == ("cat", "dog") and metadata.image_size == (SIDE, SIDE)


def test_a_public_classifier_takes_normalized_images(tmp_path):
    path = write_classifier(tmp_path / "a.onnx")
    metadata = read_onnx(path)[1]
    assert (metadata.head, metadata.output, metadata.image) == ("Classify", LOGITS, NORMALIZED)
    predictor = ExportedPredictor(OnnxRuntime(path, 1))
    images = np.full((1, 3, SIDE, SIDE), 255, np.uint8)
    ((logits,),) = predictor(images)
    wanted = [(1 - MEANS[at]) / DEVIATIONS[at] for at in (0, 1)]
    np.testing.assert_allclose(logits, wanted, rtol=1e-5)
    powers = np.exp(np.array(wanted) - max(wanted))
    (scores,) = predictor.decode_above([(logits,)], SuppressionSettings(0.0))
    np.testing.assert_allclose(scores, (powers / powers.sum())[None], rtol=1e-5)


def test_a_classifier_of_any_size_gets_images_of_its_task(tmp_path):
    path = write_classifier(tmp_path / "a.onnx", shape=("b", 3, "h", "w"))
    metadata = read_onnx(path)[1]
    assert metadata.dynamic and metadata.image_size == (224, 224)


@pytest.mark.parametrize(
    ("write", "changes", "text"),
    [
        (write_segmenter, {"prototypes": 4}, r"\(1, 4, 8, 8\): of those no mask of 2 classes"),
        (write_segmenter, {"texts": {"names": "{0: 'a'}"}}, "of those no mask of 1 class can be"),
        (write_segmenter, {"texts": own_texts(output="rows")}, "2 outputs, but its metadata has 1"),
        (write_segmenter, {"texts": own_texts(output="masks", head="Segment")}, "has .1, any, 6."),
        (write_segmenter, {"texts": own_texts(output="logits", head="Classify")}, "2 outp.* has 1"),
        (write_segmenter, {"texts": own_texts(image_size=[64, 64])}, "ONNX Runtime failed"),
        (write_classifier, {"texts": {"names": "[a, b, c]"}}, r"returns .1, 2., .* .1, 3."),
        (write_classifier, {"last": "Softmax"}, "it ends in Softmax"),
        (
            write_classifier,
            {"texts": own_texts(output="logits", head="Classify", class_names=["a"])},
            r"has \(1, 1\)",
        ),
    ],
)
def test_a_file_that_does_not_fit_its_metadata_is_refused(tmp_path, write, changes, text):
    path = write(tmp_path / "a.onnx", **changes)
    with pytest.raises(UserError, match=text) as found:
        open_runtime(path, 1)
    assert len(str(found.value)) < 1000


@pytest.mark.parametrize("head", ["Detect", "Conv", "Nothing", "Classify"])
def test_a_head_that_returns_no_masks_is_refused(tmp_path, head):
    texts = own_texts(output="mask_rows", head=head)
    runtime = OnnxRuntime(write_segmenter(tmp_path / "a.onnx", texts=texts), 1)
    with pytest.raises(UserError, match=f"a.onnx: .* head '{head}' and output mask_rows"):
        ExportedPredictor(runtime, "a.onnx")
