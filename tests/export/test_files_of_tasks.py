"""Exported files of segmenters and classifiers: masks, and logits of whole images."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest

from duet.backend.onnx.recording import constant
from duet.models.export.exported import ExportedPredictor
from duet.models.export.job import output_kind
from duet.models.export.recorded import masks_in_boxes
from duet.models.heads.classify.head import ClassifyHead
from duet.models.heads.mask.head import MaskHead
from duet.utils.errors import UserError
from duet.utils.export.config import parse_export_flags
from duet.utils.export.metadata import MASK_ROWS, MASKS, NORMALIZED
from tests.export.every_kind import SQUARES
from tests.export.small_graphs import run_graph, shapes, small_graph
from tests.shared_files import shared_path

SIZE = (64, 96)


def test_outputs_have_the_public_names_and_their_shapes(make):
    number = sum(3 * (64 // stride) * (96 // stride) for stride in (8, 16))
    plain = shapes(onnx.load_model(make("mask rows").path))
    assert plain == {"output0": (1, number, 5 + 5 + 4), "output1": (1, 4, 16, 24)}
    found = shapes(onnx.load_model(make("mask nms").path))
    assert found == {"output0": (1, 20, 6), "output1": (1, 20, 16, 24)}
    free = shapes(onnx.load_model(make("mask dynamic").path))
    assert free["output0"][0] == "batch" and free["output1"][1] == 4
    metadata = [make(name).metadata for name in ("mask rows", "mask nms")]
    assert [(one.head, one.output) for one in metadata] == [
        ("Segment", MASK_ROWS), ("Segment", MASKS),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["640x480_of_427x640", "640x640_of_1080x810"])
def test_masks_of_a_graph_are_the_stored_ones(name):
    arrays = np.load(shared_path(f"golden/segment/assemble_{name}.npz"))
    prototypes, coefficients, boxes = (
        arrays[key].astype(np.float32) for key in ("proto", "coef", "boxes")
    )
    size = tuple(4 * side for side in prototypes.shape[1:])
    given = np.concatenate((boxes, coefficients), axis=1)[None]
    graph = small_graph(
        lambda rows: [
            masks_in_boxes(constant(prototypes[None]), rows[..., 4:], rows[..., :4], size)
        ],
        given.shape,
    )
    (found,) = run_graph(graph)(given)
    wanted = np.unpackbits(arrays["low"])[: found[0].size].reshape(found[0].shape)
    assert np.array_equal(found[0] > 0.5, wanted.astype(bool)) and wanted.any()


class Returning:
    """A runtime that returns what a test says."""

    name = "a test"

    def __init__(self, metadata, *outputs):
        self.metadata, self.outputs = metadata, outputs

    def __call__(self, images):
        return self.outputs


@pytest.mark.parametrize(
    ("kind", "outputs", "text"),
    [
        (MASK_ROWS, [(1, 7, 14)], "returns 1 output, but its metadata has 2"),
        (MASK_ROWS, [(1, 7, 14), (1, 5, 16, 24)], "no mask of 5 classes can be"),
        (MASK_ROWS, [(1, 7, 10), (1, 0, 16, 24)], r"masks \(1, 0, 16, 24\): of those no mask"),
        (MASKS, [(1, 7, 6), (1, 4, 16, 24)], r"\(1, 7, 6\) with masks \(1, 4, 16, 24\)"),
    ],
)
def test_outputs_that_the_metadata_do_not_tell_are_refused(make, kind, outputs, text):
    metadata = dataclasses.replace(make("mask rows").metadata, output=kind)
    runtime = Returning(metadata, *(np.zeros(shape, np.float32) for shape in outputs))
    with pytest.raises(UserError, match=text):
        ExportedPredictor(runtime, "a.onnx")(np.zeros((1, 3, *SIZE), np.uint8))


@pytest.mark.parametrize(("at", "value"), [(0, np.nan), (1, np.nan), (1, np.inf)])
def test_what_is_no_number_is_refused(make, at, value):
    for kind, columns in ((MASK_ROWS, 14), (MASKS, 6)):
        metadata = dataclasses.replace(make("mask rows").metadata, output=kind)
        outputs = np.ones((1, 4, columns), np.float32), np.ones((1, 4, 16, 24), np.float32)
        outputs[at][0, 1, 1] = value
        predictor = ExportedPredictor(Returning(metadata, *outputs), "a.onnx")
        with pytest.raises(UserError, match="a.onnx: its outputs are not finite"):
            predictor.decode_above(predictor(np.zeros((1, 3, *SIZE), np.uint8)), 0.2)


def test_more_masks_than_can_be_put_together_are_refused(make):
    """Each is its own prototype: time would grow with the square of their number."""
    metadata = dataclasses.replace(make("mask rows").metadata, output=MASKS)
    outputs = np.ones((1, 1025, 6), np.float32), np.ones((1, 1025, 1, 1), np.float32)
    predictor = ExportedPredictor(Returning(metadata, *outputs), "a.onnx")
    with pytest.raises(UserError, match="returns 1,025 masks per image; accepted: at most 1,024"):
        predictor.decode_above(predictor(np.zeros((1, 3, *SIZE), np.uint8)), 0.2)


@pytest.mark.parametrize(
    ("head", "words", "text"),
    [
        (MaskHead, ["--nms", "--topk-all", "1025"], "--topk-all 1025: at most 1,024 masks per im"),
        (MaskHead, ["--include", "onnx", "ncnn"], "--include ncnn: .* 2 outputs.* onnx, openvino"),
        (ClassifyHead, ["--nms"], "--nms: classifiers predict no boxes"),
    ],
)
def test_what_a_task_has_no_use_for_is_refused_by_name(head, words, text):
    with pytest.raises(UserError, match=text):
        output_kind(parse_export_flags(["--weights", "a.pt", *words]), head)


def test_a_file_that_takes_normalized_images_is_given_them(make):
    """Those of other programs: here one of ours that says so, normalized twice by a reference."""
    exported = make("class plain")
    runtime = exported.runtime()
    pixels = SQUARES[0].transpose(2, 0, 1)[None]
    mean, deviation = (
        np.array(values).reshape(3, 1, 1)
        for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    (expected,) = runtime(((pixels / 255 - mean) / deviation).astype(np.float32))
    runtime.metadata = dataclasses.replace(runtime.metadata, image=NORMALIZED)
    ((found,),) = ExportedPredictor(runtime)(pixels)
    np.testing.assert_allclose(found, expected[0], rtol=1e-4, atol=1e-4)
