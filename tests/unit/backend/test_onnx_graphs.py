"""Recorded tensors -> graphs: which nodes and constants there are, and what they are called."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from backend.onnx import ops
from backend.onnx.model_proto import build_model, name_part
from backend.onnx.recording import Size, Tensor, apply, apply_for_several, constant, graph_input
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
    name_part([output], "layer_0")
    model = build_model([output], [given])
    assert [node.name for node in model.graph.node] == ["layer_0_mul_0", "layer_0"]
    found = {x.name: onnx.numpy_helper.to_array(x).ravel() for x in model.graph.initializer}
    assert {name: list(array) for name, array in found.items()} == {
        "model.0.weight_0": [3, 4, 5],
        "constant_0": [2],
    }


def test_names_of_parts_are_those_of_their_nodes_and_stay() -> None:
    given = images()
    first = ops.sigmoid(given) + ops.sigmoid(-given)
    name_part([first], "layer_0")
    second, third = -first, ops.sigmoid(first + 1.0)
    name_part([second, third], "layer_1")
    name_part([second], "another")
    nodes = build_model([second, third], [given]).graph.node
    assert {node.name for node in nodes} == {
        "layer_0_sigmoid_0", "layer_0_neg_0", "layer_0_sigmoid_1", "layer_0",
        "layer_1_0", "layer_1_add_0", "layer_1_1",
    }  # fmt: skip
    assert all(list(node.output) == [node.name] for node in nodes)


def test_equal_constants_without_a_name_are_one() -> None:
    given = images()
    model = build_model([(given * 2.0 + 2.0) * 3.0], [given])
    assert [x.name for x in model.graph.initializer] == ["constant_0", "constant_1"]


def test_parameters_that_are_equal_keep_their_names() -> None:
    given, weights = images(), [constant(np.ones((1, 1, 1, 1), np.float32)) for _ in range(2)]
    for index, weight in enumerate(weights):
        weight.name = f"model.{index}.weight"
    model = build_model([given * weights[0] * weights[1]], [given])
    assert [x.name for x in model.graph.initializer] == ["model.0.weight", "model.1.weight"]


def test_a_reshape_leaves_one_free_size_to_onnx() -> None:
    given = images()
    batch, channels, height, width = given.shape
    output = given.reshape(batch, channels, height * width)
    assert operations(output, given) == ["Reshape"]
    array = np.arange(5 * 3 * 2 * 6, dtype=np.float32).reshape(5, 3, 2, 6)
    (found,) = run([output], given, array)
    assert np.array_equal(found, array.reshape(5, 3, 12))


def test_a_reshape_of_several_free_sizes_asks_for_them() -> None:
    given = graph_input("images", (2, 3, 4, 6), "float32", {2: "height", 3: "width"})
    batch, channels, height, width = given.shape
    output = given.permute(0, 2, 3, 1).reshape(batch * channels, 1, height, width)
    array = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7)
    (found,) = run([output], given, array)
    assert np.array_equal(found, array.transpose(0, 2, 3, 1).reshape(6, 1, 5, 7))


def test_a_side_that_an_earlier_tensor_has_is_asked_of_it_once() -> None:
    given = images()
    later = ops.sigmoid(given)
    assert later.shape[0] is given.shape[0]
    height, width = (2 * side for side in later.shape[2:])
    enlarged = ops.upsample_nearest_2x(later)
    assert enlarged.shape[2] is not later.shape[2] and enlarged.shape[2] == height
    assert not isinstance(enlarged.shape[3], Size) and enlarged.shape[3] == width


@pytest.mark.parametrize(
    ("part", "rows"), [(slice(1, None), [1, 2, 3, 4]), (slice(0, 2), [0, 1]), (slice(4, 9), [4])]
)
def test_a_slice_of_a_free_side_is_free(part: slice, rows: list[int]) -> None:
    given = images()
    cut = given[:, :, part]
    assert isinstance(cut.shape[2], Size)
    batch, channels, height, width = cut.shape
    output = cut.reshape(batch, channels * height, width)
    array = np.arange(2 * 3 * 5 * 6, dtype=np.float32).reshape(2, 3, 5, 6)
    (found,) = run([output], given, array)
    assert np.array_equal(found, array[:, :, rows].reshape(2, 3 * len(rows), 6))


def test_a_resize_keeps_the_free_batch_and_takes_free_sides() -> None:
    given = images()
    fixed = ops.resize_bilinear(given, 2, 3)
    doubled = ops.resize_bilinear(given, 2 * given.shape[2], 12)
    array = np.full((5, 3, 8, 6), 7, np.float32)
    for found, sides in zip(run([fixed, doubled], given, array), ((2, 3), (16, 12)), strict=True):
        assert np.array_equal(found, np.full((5, 3, *sides), 7))
    assert isinstance(fixed.shape[0], Size) and isinstance(doubled.shape[2], Size)


def test_a_resize_of_free_sides_in_float64_is_refused() -> None:
    given = images()
    with pytest.raises(ValueError, match="float64 images of free sizes"):
        ops.resize_bilinear(ops.cast(given, "float64"), 2, 3)
    with pytest.raises(ValueError, match="float64 images of free sizes"):
        ops.resize_bilinear(constant(np.ones((1, 3, 4, 4))), given.shape[2], 3)


def test_padding_grows_with_a_free_side() -> None:
    given = images()
    height, width = given.shape[2:]
    more, twice = ops.pad_to(given, height + 1, width, 2.0), ops.pad_to(given, 2 * height, 6, 2.0)
    array = np.ones((5, 3, 7, 6), np.float32)
    for found, rows in zip(run([more, twice], given, array), (8, 14), strict=True):
        assert np.array_equal(found[:, :, :7], array)
        assert np.array_equal(found[:, :, 7:], np.full((5, 3, rows - 7, 6), 2))


def test_a_free_side_is_not_padded_to_a_number() -> None:
    with pytest.raises(ValueError, match="a side of free size cannot be padded to 9"):
        ops.pad_to(images(), 9, 6, 0.5)


def test_a_free_size_is_taken_from_a_number() -> None:
    given = images()
    batch, channels, height, width = given.shape
    left = 12 - height
    assert isinstance(left, Size) and left == 8
    (found,) = run([ops.resize_bilinear(given, left, 6)], given, np.ones((1, 3, 5, 6), np.float32))
    assert found.shape == (1, 3, 7, 6)


@pytest.mark.parametrize(
    "compute",
    [
        lambda size: size % 8,
        lambda size: 9 % size,
        lambda size: divmod(size, 8),
        lambda size: -size,
        lambda size: size / 2,
        lambda size: 8 / size,
        lambda size: 8 // size,
        lambda size: size**2,
        lambda size: 2**size,
        abs,
    ],
    ids=["rest", "of", "both", "minus", "part", "over", "whole", "power", "exponent", "abs"],
)
def test_what_would_freeze_a_free_size_is_refused(compute) -> None:
    with pytest.raises(ValueError, match=r"a free size has only \+, -, \* and //"):
        compute(images().shape[2])


def test_one_row_of_a_free_side_is_taken() -> None:
    given = images()
    array = np.arange(2 * 3 * 5 * 6, dtype=np.float32).reshape(2, 3, 5, 6)
    (found,) = run([given[0, :, -1]], given, array)
    assert np.array_equal(found, array[0, :, -1])


@pytest.mark.parametrize("part", [slice(None, 1), slice(1, None), slice(None, None, 1), 1])
def test_an_index_is_no_free_size(part) -> None:
    given = images()
    one = given.shape[2] // 4
    free = slice(*(one if x == 1 else x for x in (part.start, part.stop, part.step))) if (
        isinstance(part, slice)
    ) else one  # fmt: skip
    with pytest.raises(ValueError, match="a free size cannot be an index"):
        given[:, :, free]


def test_an_operation_with_several_results_is_one_node() -> None:
    given = images(free=False)
    largest = constant(np.array([2]))
    shape = (2, 3, 4, 2)
    found = apply_for_several("TopK", (given, largest), [(shape, "float32"), (shape, "int64")])
    name_part(found, "best")
    model = build_model(found, [given])
    assert [list(node.output) for node in model.graph.node] == [["best_0", "best_1"]]
    array = np.random.default_rng(0).random((2, 3, 4, 6), np.float32)
    values, index = run(found, given, array)
    assert np.array_equal(values, -np.sort(-array, axis=-1)[..., :2])
    assert np.array_equal(np.take_along_axis(array, index, -1), values)


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


def test_a_foreign_operator_has_its_domain() -> None:
    given = images()
    model = build_model([apply("Own", (given,), given.shape, "float32", domain="ours")], [given])
    assert {(x.domain, x.version) for x in model.opset_import} == {("", 17), ("ours", 1)}


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
