"""When the values of recorded tensors are computed, and how often."""

import gc
import weakref

import numpy as np
import pytest

from duet.backend import checks
from duet.backend.onnx import device, model_proto, nn, ops
from duet.backend.onnx.recording import constant, graph_input


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


def test_nothing_is_computed_before_it_is_asked_for_and_then_once(graphs):
    x = constant(np.ones(2, np.float32)) * 3.0
    assert graphs == []
    for _ in range(2):
        np.testing.assert_array_equal(ops.to_numpy(x), [3, 3])
    assert graphs == [["Mul"]]
    np.testing.assert_array_equal(ops.to_numpy(x + x), [6, 6])  # from what is known
    assert graphs[1:] == [["Add"]]


def test_what_a_module_returns_together_is_computed_together(graphs):
    one, other = Twice().eval()(constant(np.full((1, 1, 1, 2), 5, np.float32)))
    np.testing.assert_array_equal(ops.to_numpy(one[..., 0]), [[[16]]])
    np.testing.assert_array_equal(ops.to_numpy(other > 29.0), [[[[True, True]]]])
    assert [graph.count("Conv") for graph in graphs] == [1, 0]


def test_maps_that_are_not_needed_any_more_are_freed_without_a_search_for_cycles():
    gc.disable()
    try:
        one, other = Twice().eval()(constant(np.full((1, 1, 1, 2), 5, np.float32)))
        ops.to_numpy(one)
        watched = weakref.ref(one), weakref.ref(other), weakref.ref(other.node)
        del one, other
        assert [ref() for ref in watched] == [None] * 3
    finally:
        gc.enable()


def test_more_numbers_than_a_graph_holds_are_refused(monkeypatch):
    monkeypatch.setattr(model_proto, "MOST_BYTES", 8000)
    ops.to_numpy(constant(np.ones(1000, np.float32)) + 1.0)
    with pytest.raises(ValueError, match="a graph can hold at most 8,000 bytes of weights"):
        ops.to_numpy(constant(np.ones(1000, np.float64)) + 1.0)


@pytest.mark.parametrize("name", ["0", "cuda:1", "0,1", "cpu,0"])
def test_a_gpu_is_refused_with_what_computes_on_one(name):
    reported = (
        f"--device '{name}': backend onnx runs only on the CPU; use --device cpu, or --backend"
    )
    with pytest.raises(ValueError, match=f"{reported} torch or oneflow"):
        device.resolve(name)
    assert device.resolve("") == device.resolve("cpu") == "cpu"


def test_values_that_depend_on_the_input_of_a_graph_are_not_known():
    images = graph_input("images", (1, 1, 2, 2), "float32")
    with pytest.raises(ValueError, match="'images' is a graph input"):
        ops.to_numpy(images * 2.0)


WHOLE = constant(np.array([-7, 0, 2**53 + 1]))
MASK = constant(np.ones(2, bool))


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda: WHOLE + 0.5, "0.5; accepted: whole numbers"),
        (lambda: WHOLE / 2, "Div does not support int64; cast to a float"),
        (lambda: 2 / WHOLE, "Div does not support int64"),
        (lambda: WHOLE**3, "Pow does not support int64"),
        (lambda: MASK + MASK, "does not support bool"),
        (lambda: -MASK, "does not support bool"),
    ],
)
def test_what_onnx_does_not_compute_of_integers_is_refused_where_it_is_called(compute, message):
    with pytest.raises(ValueError, match=message):
        compute()


def test_float16_is_for_modules_and_casts_alone():
    assert "float16" not in checks.FLOAT_DTYPES
    half = ops.cast(constant(np.array([1.5, 70000], np.float32)), "float16")
    np.testing.assert_array_equal(ops.to_numpy(half), np.array([1.5, np.inf], np.float16))
    with pytest.raises(ValueError, match="float16"):
        ops.tensor(np.zeros(2, np.float16))


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (nn.Conv2d(3, 4, 5), (1, 3, 4, 9), "a window of 5"),
        (nn.Conv2d(4, 4, 1, groups=2), (1, 2, 4, 4), r"takes \(B, 4, H, W\) float32"),
        (nn.MaxPool2d(3, 1), (1, 3, 2, 9), "a window of 3"),
        (nn.BatchNorm2d(3), (1, 4, 2, 2), r"takes \(B, 3, H, W\) float32"),
        (nn.BatchNorm2d(3), (3,), r"not \(3,\)"),
    ],
    ids=["window", "groups", "pool", "norm", "one dimension"],
)
def test_a_layer_refuses_maps_that_do_not_fit(layer, shape, message):
    with pytest.raises(ValueError, match=message):
        layer.eval()(constant(np.zeros(shape, np.float32)))
