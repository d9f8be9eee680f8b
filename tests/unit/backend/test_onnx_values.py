"""When the values of recorded tensors are computed, and how often."""

import copy
import gc
import threading
import weakref

import numpy as np
import pytest

from duet.backend import checks, cores
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


def test_a_module_may_return_other_things_beside_tensors():
    class Counted(nn.Module):
        def forward(self, x):
            return x + 1.0, 3, "three", None

    x, *others = Counted()(constant(np.ones(2, np.float32)))
    np.testing.assert_array_equal(ops.to_numpy(x), [2, 2])
    assert others == [3, "three", None]


def test_numbers_of_numpy_are_numbers():
    x = constant(np.full(2, 3, np.float32))
    for found in (np.float64(2) * x, x * np.float32(2), np.int64(2) * x):
        assert ops.dtype_of(found) == "float32"
        np.testing.assert_array_equal(ops.to_numpy(found), [6, 6])
    with pytest.raises(ValueError, match="accepted: whole numbers"):
        constant(np.ones(2, np.int64)) + np.float32(0.5)


def test_a_copy_of_a_module_that_keeps_a_long_computation_is_made_at_once():
    model, x = Twice(), constant(np.ones(1, np.float32))
    for _ in range(1500):  # beyond Python's depth of calls
        x = x + 1.0
    model.kept = x
    assert copy.deepcopy(model).kept is x
    assert ops.to_numpy(x).item() == 1501


def test_weights_keep_their_names_in_another_dtype_and_with_other_values():
    model = Twice()
    nn.name_tensors(model)
    nn.load_state_arrays(model, {"conv.weight": np.ones((1, 1, 1, 1), np.float64)})
    nn.place(model, "cpu", "float16")
    assert model.conv.weight.name == "conv.weight"


def test_the_threads_of_the_thread_that_asks_are_those_of_onnx_runtime(monkeypatch):
    asked = []

    class Session(model_proto.onnxruntime.InferenceSession):
        def __init__(self, content, options, providers):
            asked.append(options.intra_op_num_threads)
            super().__init__(content, options, providers)

    monkeypatch.setattr(model_proto.onnxruntime, "InferenceSession", Session)

    def work():
        device.set_host_threads(2)
        ops.to_numpy(constant(np.ones(2, np.float32)) + 1.0)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    ops.to_numpy(constant(np.ones(2, np.float32)) + 1.0)
    assert asked == [2, device.host_threads()]


@pytest.mark.parametrize(
    ("text", "wanted"), [("3", 3), ("", "cores"), ("0", "cores"), ("2,4", "cores"), ("²", "cores")]
)
def test_threads_are_those_of_openmp_or_one_a_core(monkeypatch, text, wanted):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    monkeypatch.setattr(cores, "cores_of_rank", lambda: "cores")
    assert device._default_threads.__wrapped__() == wanted


def test_more_numbers_than_a_graph_holds_are_refused(monkeypatch):
    monkeypatch.setattr(model_proto, "MOST_BYTES", 8000)
    ops.to_numpy(constant(np.ones(1000, np.float32)) + 1.0)
    with pytest.raises(ValueError, match="a graph can hold at most 8,000 bytes of weights"):
        ops.to_numpy(constant(np.ones(1000, np.float64)) + 1.0)


@pytest.mark.parametrize("name", ["0", "cuda:1", "0,1", "cpu,0"])
def test_a_gpu_is_refused_with_what_computes_on_one(name):
    told = f"--device '{name}': backend onnx runs only on the CPU; use --device cpu, or --backend"
    with pytest.raises(ValueError, match=f"{told} torch or oneflow"):
        device.resolve(name)
    assert device.resolve("") == device.resolve("cpu") == "cpu"


def test_values_that_depend_on_the_input_of_a_graph_are_not_known():
    images = graph_input("images", (1, 1, 2, 2), "float32")
    with pytest.raises(ValueError, match="'images' is a graph input"):
        ops.to_numpy(images * 2.0)


WHOLE = constant(np.array([-7, 0, 2**53 + 1]))
BYTES, MASK = constant(np.ones(2, np.uint8)), constant(np.ones(2, bool))


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (lambda: WHOLE + 0.5, "0.5; accepted: whole"),
        (lambda: BYTES + 0.5, "0.5; accepted: whole"),
        (lambda: WHOLE / 2, "Div does not support int64; cast to a float"),
        (lambda: WHOLE / WHOLE, "Div does not support int64"),  # by 0 it ended the process
        (lambda: 2 / WHOLE, "Div does not support int64"),
        (lambda: WHOLE**3, "Pow does not support int64"),
        (lambda: MASK + MASK, "does not support bool"),
        (lambda: 1 - MASK, "does not support bool"),
        (lambda: MASK**2, "does not support bool"),
        (lambda: -MASK, "does not support bool"),
        (lambda: -BYTES, "does not support uint8"),
    ],
)
def test_what_onnx_does_not_compute_of_integers_is_refused_where_it_is_called(compute, message):
    with pytest.raises(ValueError, match=message):
        compute()


def test_integers_are_compared_added_and_multiplied_as_by_numpy():
    x = np.array([-7, 0, 2**53 + 1])
    for function in (
        lambda x: x + 1,
        lambda x: 2 - x,
        lambda x: x * 3,
        lambda x: -x,
        lambda x: x[:2] ** 2,
        lambda x: x > 1.5,
        lambda x: x < np.inf,
        lambda x: x > 2**53,
        lambda x: x < 2**64,
    ):
        np.testing.assert_array_equal(ops.to_numpy(function(constant(x))), function(x))


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
