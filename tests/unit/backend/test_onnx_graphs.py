"""Recorded tensors -> graphs: which nodes and constants there are, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from duet.backend.onnx import ops
from duet.backend.onnx.model_proto import build_model, fold_constants
from duet.backend.onnx.recording import (
    Tensor,
    apply,
    constant,
    graph_input,
)
from tests.export.small_graphs import onnx, onnxruntime

FREE = {0: "batch", 2: "height"}


def images(free: bool = True) -> Tensor:
    return graph_input("images", (2, 3, 4, 6), "float32", FREE if free else {})


def run(outputs: Sequence[Tensor], given: Tensor, array: np.ndarray) -> list[np.ndarray]:
    model = build_model(outputs, [given])
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {given.name: array})


def operations(output: Tensor, given: Tensor, opset: int = 17) -> list[str]:
    return [node.op_type for node in build_model([output], [given], opset).graph.node]


def test_what_depends_on_no_input_becomes_a_constant_of_its_parameter() -> None:
    given, weight = images(), constant(np.arange(6, dtype=np.float32).reshape(2, 3))
    weight.name = "model.0.weight"
    output = given * weight[1].reshape(1, 3, 1, 1) * 2.0
    fold_constants([output])
    model = build_model([output], [given])
    assert [node.name for node in model.graph.node] == ["mul_0", "mul_1"]
    found = {x.name: onnx.numpy_helper.to_array(x).ravel() for x in model.graph.initializer}
    assert {name: list(array) for name, array in found.items()} == {
        "model.0.weight_0": [3, 4, 5],
        "constant_0": [2],
    }


def test_parameters_that_are_equal_keep_their_names() -> None:
    given, weights = images(), [constant(np.ones((1, 1, 1, 1), np.float32)) for _ in range(2)]
    for index, weight in enumerate(weights):
        weight.name = f"model.{index}.weight"
    model = build_model([given * weights[0] * weights[1]], [given])
    assert [x.name for x in model.graph.initializer] == ["model.0.weight", "model.1.weight"]


def test_a_reshape_leaves_one_free_size_to_onnx() -> None:
    given = images()
    batch, channels, height, width = given.shape
    assert operations(given.reshape(batch, channels, height * width), given) == ["Reshape"]


# What is computed of images with a free batch, 2 in the example, and a free height, 4 there.
OF_FREE_SIDES = {
    "one size of several": (lambda x: x.reshape(x.shape[0], 3, x.shape[2] * 6), (5, 3, 12)),
    "a product of a size": (lambda x: x.reshape(x.shape[0] * 3, 1, x.shape[2], 6), (15, 1, 2, 6)),
    "rows from the second": (lambda x: x[:, :, 1:].reshape(x.shape[0], -1), (5, 18)),
    "the last row of the first": (lambda x: x[0, :, -1], (3, 6)),
    "resized to numbers": (lambda x: ops.resize_bilinear(x, 2, 3), (5, 3, 2, 3)),
    "resized to twice": (lambda x: ops.resize_bilinear(x, 2 * x.shape[2], 12), (5, 3, 4, 12)),
    "resized to what is left": (
        lambda x: ops.resize_bilinear(x, 12 - x.shape[2], 6),
        (5, 3, 10, 6),
    ),
    "a row more": (lambda x: ops.pad_to(x, x.shape[2] + 1, 6, 2.0), (5, 3, 3, 6)),
    "twice the rows": (lambda x: ops.pad_to(x, 2 * x.shape[2], 6, 2.0), (5, 3, 4, 6)),
}


@pytest.mark.parametrize("name", OF_FREE_SIDES)
def test_sizes_follow_the_sides_that_are_free(name: str) -> None:
    compute, shape = OF_FREE_SIDES[name]
    array = np.arange(5 * 3 * 2 * 6, dtype=np.float32).reshape(5, 3, 2, 6)
    given = images()
    (found,) = run([compute(given)], given, array)
    assert found.shape == shape
    # The same of the array, all of whose sides are known.
    np.testing.assert_allclose(found, ops.to_numpy(compute(constant(array))), rtol=1e-6)


def test_a_resize_of_free_sides_in_float64_is_refused() -> None:
    given = images()
    with pytest.raises(ValueError, match="float64 images of dynamic size"):
        ops.resize_bilinear(ops.cast(given, "float64"), 2, 3)
    with pytest.raises(ValueError, match="float64 images of dynamic size"):
        ops.resize_bilinear(constant(np.ones((1, 3, 4, 4))), given.shape[2], 3)


def test_a_free_side_is_not_padded_to_a_number() -> None:
    with pytest.raises(ValueError, match="a dynamic size cannot be padded to 9"):
        ops.pad_to(images(), 9, 6, 0.5)


@pytest.mark.parametrize(
    "compute",
    [
        lambda size: size % 8,
        lambda size: divmod(size, 8),
        lambda size: size / 2,
        lambda size: size**2,
        abs,
    ],
    ids=["rest", "both", "part", "power", "abs"],
)
def test_what_would_freeze_a_free_size_is_refused(compute) -> None:
    with pytest.raises(ValueError, match=r"a dynamic size supports only \+, -, \* and //"):
        compute(images().shape[2])


@pytest.mark.parametrize("part", [slice(None, 1), slice(1, None), slice(None, None, 1), 1])
def test_an_index_is_no_free_size(part) -> None:
    given = images()
    one = given.shape[2] // 4
    free = slice(*(one if x == 1 else x for x in (part.start, part.stop, part.step))) if (
        isinstance(part, slice)
    ) else one  # fmt: skip
    with pytest.raises(ValueError, match="a dynamic size cannot be an index"):
        given[:, :, free]


def test_an_old_opset_takes_a_side_out_of_all_sides() -> None:
    given = images()
    batch, channels, height, width = given.shape
    output = given.reshape(batch * channels, height, width)
    assert operations(output, given).count("Shape") == 2
    old = build_model([output], [given], opset=14)
    assert not [node for node in old.graph.node if node.op_type == "Shape" and node.attribute]
    array = np.arange(5 * 3 * 2 * 6, dtype=np.float32).reshape(5, 3, 2, 6)
    session = onnxruntime.InferenceSession(old.SerializeToString())
    assert np.array_equal(session.run(None, {"images": array})[0], array.reshape(15, 2, 6))


def test_zeros_around_negative_numbers_are_the_largest_of_a_pooling() -> None:
    given = images(free=False)
    padded = ops.pad_to(given, 5, 7, 0.0)
    window = {"kernel_shape": [2, 2], "strides": [1, 1], "pads": [0] * 4}
    output = apply("MaxPool", (padded,), (2, 3, 4, 6), "float32", **window)
    (found,) = run([output], given, np.full((2, 3, 4, 6), -1, np.float32))
    assert np.array_equal(found[..., :-1, :-1], np.full((2, 3, 3, 5), -1))
    assert not found[..., -1, :].any() and not found[..., :, -1].any()


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_a_mean_over_free_sides_counts_what_is_there(opset: int) -> None:
    given = images()
    over_maps = ops.mean(given.reshape(given.shape[0], 3, -1), 2)
    model = build_model([over_maps, ops.mean(given)], [given], opset)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    array = np.random.default_rng(0).random((5, 3, 2, 6), np.float32)
    means, whole = session.run(None, {"images": array})
    np.testing.assert_allclose(means, array.mean((2, 3)), rtol=1e-6)
    np.testing.assert_allclose(whole, array.mean(), rtol=1e-6)
