"""Recorded tensors: nodes and constants of their graphs, and when their values are computed."""

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from duet.backend import checks
from duet.backend.onnx import device, model_proto, nn, ops
from duet.backend.onnx.model_proto import build_model, fold_constants
from duet.backend.onnx.recording import Tensor, apply, constant, graph_input

FREE = {0: "batch", 2: "height"}


def images(free: bool = True) -> Tensor:
    return graph_input("images", (2, 3, 4, 6), "float32", FREE if free else {})


def run(outputs: Sequence[Tensor], given: Tensor, array: np.ndarray) -> list[np.ndarray]:
    model = build_model(outputs, [given])
    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {given.name: array})


def operations(output: Tensor, given: Tensor, opset: int = 17) -> list[str]:
    return [node.op_type for node in build_model([output], [given], opset).graph.node]


def test_constant_expressions_fold_into_named_initializers() -> None:
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


def test_equal_parameters_keep_their_names() -> None:
    given, weights = images(), [constant(np.ones((1, 1, 1, 1), np.float32)) for _ in range(2)]
    for index, weight in enumerate(weights):
        weight.name = f"model.{index}.weight"
    model = build_model([given * weights[0] * weights[1]], [given])
    assert [x.name for x in model.graph.initializer] == ["model.0.weight", "model.1.weight"]


def test_reshape_with_one_free_side_needs_no_shape_node() -> None:
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
def test_shapes_follow_the_free_sides(name: str) -> None:
    compute, shape = OF_FREE_SIDES[name]
    array = np.arange(5 * 3 * 2 * 6, dtype=np.float32).reshape(5, 3, 2, 6)
    given = images()
    (found,) = run([compute(given)], given, array)
    assert found.shape == shape
    # The same of the array, all of whose sides are known.
    np.testing.assert_allclose(found, ops.to_numpy(compute(constant(array))), rtol=1e-6)


def test_opset_14_slices_one_side_from_the_whole_shape() -> None:
    given = images()
    batch, channels, height, width = given.shape
    output = given.reshape(batch * channels, height, width)
    assert operations(output, given).count("Shape") == 2
    old = build_model([output], [given], opset=14)
    assert not [node for node in old.graph.node if node.op_type == "Shape" and node.attribute]
    array = np.arange(5 * 3 * 2 * 6, dtype=np.float32).reshape(5, 3, 2, 6)
    session = onnxruntime.InferenceSession(old.SerializeToString())
    assert np.array_equal(session.run(None, {"images": array})[0], array.reshape(15, 2, 6))


def test_max_pool_sees_padding_as_zeros() -> None:
    given = images(free=False)
    padded = ops.pad_to(given, 5, 7, 0.0)
    window = {"kernel_shape": [2, 2], "strides": [1, 1], "pads": [0] * 4}
    output = apply("MaxPool", (padded,), (2, 3, 4, 6), "float32", **window)
    (found,) = run([output], given, np.full((2, 3, 4, 6), -1, np.float32))
    assert np.array_equal(found[..., :-1, :-1], np.full((2, 3, 3, 5), -1))
    assert not found[..., -1, :].any() and not found[..., :, -1].any()


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_mean_over_free_sides_divides_by_the_actual_count(opset: int) -> None:
    given = images()
    over_maps = ops.mean(given.reshape(given.shape[0], 3, -1), 2)
    model = build_model([over_maps, ops.mean(given)], [given], opset)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    array = np.random.default_rng(0).random((5, 3, 2, 6), np.float32)
    means, whole = session.run(None, {"images": array})
    np.testing.assert_allclose(means, array.mean((2, 3)), rtol=1e-6)
    np.testing.assert_allclose(whole, array.mean(), rtol=1e-6)


class Twice(nn.Module):
    """A network whose two maps share a convolution."""

    def __init__(self):
        self.conv = nn.Conv2d(1, 1, 1, bias=False)
        nn.load_state_arrays(self, {"conv.weight": np.full((1, 1, 1, 1), 3, np.float32)})

    def forward(self, x):
        y = self.conv(x)
        return y + 1.0, y * 2.0


@pytest.fixture
def graphs(monkeypatch):
    """The operations of each graph that is run."""
    run, found = model_proto._run, []

    def counted(model):
        found.append([node.op_type for node in model.graph.node])
        return run(model)

    monkeypatch.setattr(model_proto, "_run", counted)
    return found


def test_onnx_values_are_computed_lazily_and_once(graphs):
    x = constant(np.ones(2, np.float32)) * 3.0
    assert graphs == []
    for _ in range(2):
        np.testing.assert_array_equal(ops.to_numpy(x), [3, 3])
    assert graphs == [["Mul"]]
    np.testing.assert_array_equal(ops.to_numpy(x + x), [6, 6])  # from what is known
    assert graphs[1:] == [["Add"]]


def test_all_outputs_of_a_module_are_computed_together(graphs):
    one, other = Twice().eval()(constant(np.full((1, 1, 1, 2), 5, np.float32)))
    np.testing.assert_array_equal(ops.to_numpy(one[..., 0]), [[[16]]])
    np.testing.assert_array_equal(ops.to_numpy(other > 29.0), [[[[True, True]]]])
    assert [graph.count("Conv") for graph in graphs] == [1, 0]


def test_unused_maps_are_freed_without_garbage_collection():
    gc.disable()
    try:
        one, other = Twice().eval()(constant(np.full((1, 1, 1, 2), 5, np.float32)))
        ops.to_numpy(one)
        watched = weakref.ref(one), weakref.ref(other), weakref.ref(other.node)
        del one, other
        assert [ref() for ref in watched] == [None] * 3
    finally:
        gc.enable()


def test_weights_above_the_graph_limit_are_refused(monkeypatch):
    monkeypatch.setattr(model_proto, "MOST_BYTES", 8000)
    ops.to_numpy(constant(np.ones(1000, np.float32)) + 1.0)
    with pytest.raises(ValueError, match="a graph can hold at most 8,000 bytes of weights"):
        ops.to_numpy(constant(np.ones(1000, np.float64)) + 1.0)


WHOLE = constant(np.array([-7, 0, 2**53 + 1]))
MASK = constant(np.ones(2, bool))
EVALUATED = [
    nn.Conv2d(3, 4, 5),
    nn.Conv2d(4, 4, 1, groups=2),
    nn.MaxPool2d(3, 1),
    nn.BatchNorm2d(3),
]
WINDOW, GROUPS, POOL, NORM = (layer.eval() for layer in EVALUATED)
FREE_SIZE = r"a dynamic size supports only \+, -, \* and //"
FREE_INDEX, FREE_FLOAT64 = "a dynamic size cannot be an index", "float64 images of dynamic size"
ONLY_CPU = "backend onnx runs only on the CPU; use --device cpu, or --backend torch or oneflow"


def maps(*shape: int) -> Tensor:
    return constant(np.zeros(shape, np.float32))


def height() -> Any:
    return images().shape[2]


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: WHOLE + 0.5, "0.5; accepted: whole numbers"),
    (lambda: WHOLE / 2, "Div does not support int64; cast to a float"),
    (lambda: 2 / WHOLE, "Div does not support int64"),
    (lambda: WHOLE**3, "Pow does not support int64"),
    (lambda: MASK + MASK, "does not support bool"),
    (lambda: -MASK, "does not support bool"),
    (lambda: WINDOW(maps(1, 3, 4, 9)), "a window of 5"),
    (lambda: GROUPS(maps(1, 2, 4, 4)), r"takes \(B, 4, H, W\) float32"),
    (lambda: POOL(maps(1, 3, 2, 9)), "a window of 3"),
    (lambda: NORM(maps(1, 4, 2, 2)), r"takes \(B, 3, H, W\) float32"),
    (lambda: NORM(maps(3)), r"not \(3,\)"),
    (lambda: height() % 8, FREE_SIZE),
    (lambda: divmod(height(), 8), FREE_SIZE),
    (lambda: height() / 2, FREE_SIZE),
    (lambda: height() ** 2, FREE_SIZE),
    (lambda: abs(height()), FREE_SIZE),
    (lambda: images()[:, :, : height() // 4], FREE_INDEX),
    (lambda: images()[:, :, height() // 4 :], FREE_INDEX),
    (lambda: images()[:, :, :: height() // 4], FREE_INDEX),
    (lambda: images()[:, :, height() // 4], FREE_INDEX),
    (lambda: ops.pad_to(images(), 9, 6, 0.5), "a dynamic size cannot be padded to 9"),
    (lambda: ops.resize_bilinear(ops.cast(images(), "float64"), 2, 3), FREE_FLOAT64),
    (lambda: ops.resize_bilinear(ops.cast(maps(1, 3, 4, 4), "float64"), height(), 3), FREE_FLOAT64),
    (lambda: ops.to_numpy(images() * 2.0), "'images' is a graph input"),
    (lambda: ops.tensor(np.zeros(2, np.float16)), "float16"),
    *(
        (lambda name=name: device.resolve(name), ONLY_CPU)
        for name in ("0", "cuda:1", "0,1", "cpu,0")
    ),
]


@pytest.mark.parametrize(("compute", "message"), REFUSED)
def test_unsupported_onnx_operation_is_refused_at_the_call(compute, message):
    with pytest.raises(ValueError, match=message):
        compute()


def test_float16_exists_only_for_modules_and_casts():
    assert "float16" not in checks.FLOAT_DTYPES
    half = ops.cast(constant(np.array([1.5, 70000], np.float32)), "float16")
    np.testing.assert_array_equal(ops.to_numpy(half), np.array([1.5, np.inf], np.float16))
