"""Checks of `contract.NN`: modules and their state."""

import io
import warnings
import zipfile
from typing import Any

import numpy as np

from tests.conformance.checks_optim import backward
from tests.conformance.judging import (
    Backend,
    assert_equal,
    assert_refused,
    judges,
    learn,
    uniform,
)

NAMES = ("stem.conv.weight", "stem.bn.weight", "stem.bn.bias", "heads.0.weight", "heads.0.bias")
STATE_NAMES = (
    "grid",
    "stem.conv.weight",
    "stem.bn.weight",
    "stem.bn.bias",
    "stem.bn.running_mean",
    "stem.bn.running_var",
    "stem.bn.num_batches_tracked",
    "heads.0.weight",
    "heads.0.bias",
)


def build(b: Backend, grid: np.ndarray | None = None) -> Any:
    """Return a small network with a module in a list and a buffer."""

    class Stem(b.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = b.nn.Conv2d(2, 3, 1, bias=False)
            self.bn = b.nn.BatchNorm2d(3)

        def forward(self, x: Any) -> Any:
            return self.bn(self.conv(x))

    class Network(b.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = Stem()
            self.heads = b.nn.ModuleList([b.nn.Conv2d(3, 1, 1)])
            b.nn.register_buffer(self, "grid", np.ones((2, 1)) if grid is None else grid)

        def forward(self, x: Any) -> Any:
            return [head(self.stem(x)) for head in self.heads]

    return Network()


def random_state(b: Backend, module: Any) -> dict[str, np.ndarray]:
    return {
        name: uniform(array.shape, array.dtype.name, 1, 9, seed)
        for seed, (name, array) in enumerate(b.nn.state_arrays(module).items())
    }


def assert_state(b: Backend, module: Any, wanted: dict[str, np.ndarray]) -> None:
    found = b.nn.state_arrays(module)
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert_equal(found[name], array)


@judges("nn.Module")
def calls_forward_and_passes_the_mode_on(b: Backend) -> None:
    network = build(b)
    assert network.training and network.stem.bn.training
    network.eval()
    assert not network.training and not network.stem.bn.training
    (output,) = network(b.zeros((1, 2, 4, 4)))
    assert tuple(output.shape) == (1, 1, 4, 4)
    network.train()
    assert network.stem.bn.training
    assert len(list(network.modules())) == 6


@judges("nn.ModuleList")
def lists_modules_by_position(b: Backend) -> None:
    first, second = b.nn.Conv2d(1, 1, 1), b.nn.BatchNorm2d(1)
    modules = b.nn.ModuleList([first, second])
    assert len(modules) == 2
    assert modules[0] is first and modules[-1] is second
    assert [module for module in modules] == [first, second]
    assert list(b.nn.state_arrays(modules))[:3] == ["0.weight", "0.bias", "1.weight"]
    assert list(b.nn.ModuleList()) == []


@judges("nn.Sequential")
def calls_modules_in_order(b: Backend) -> None:
    class Halve(b.nn.Module):
        def forward(self, x: Any) -> Any:
            return x / 2.0

    class Increase(b.nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1.0

    increase = Increase()
    chain = b.nn.Sequential(Halve(), increase)
    assert_equal(b.ops.to_numpy(chain(b.full((2,), 4.0))), np.full(2, 3.0, "float32"))
    assert_equal(b.ops.to_numpy(b.nn.Sequential()(b.full((2,), 4.0))), np.full(2, 4.0, "float32"))
    assert chain[1] is increase and list(chain)[1] is increase
    names = list(b.nn.state_arrays(b.nn.Sequential(Halve(), b.nn.BatchNorm2d(1))))
    assert names[:2] == ["1.weight", "1.bias"]


@judges("nn.named_parameters")
def each_parameter_once_in_order_of_definition(b: Backend) -> None:
    network = build(b)
    parameters = list(b.nn.named_parameters(network))
    assert tuple(name for name, _ in parameters) == NAMES
    assert all(parameter.requires_grad for _, parameter in parameters)
    shared = network.heads[0]
    network.again = shared
    assert tuple(name for name, _ in b.nn.named_parameters(network)) == NAMES


@judges("nn.float_tensors")
def lists_what_is_there_after_moving_and_loading(b: Backend) -> None:
    network = build(b)
    current = b.nn.float_tensors(network)
    for dtype in ("float64", "float32"):
        b.nn.place(network, "cpu", dtype)
        state = random_state(b, network)
        b.nn.load_state_arrays(network, state)
        wanted = [state[name] for name in STATE_NAMES if state[name].dtype.kind == "f"]
        assert len(current()) == len(wanted) == len(STATE_NAMES) - 1
        for tensor, array in zip(current(), wanted, strict=True):
            assert_equal(b.ops.to_numpy(tensor), array.astype(dtype))


@judges("nn.state_tensors")
def detached_and_sharing_memory(b: Backend) -> None:
    network = build(b)
    tensors = b.nn.state_tensors(network)
    assert tuple(tensors) == STATE_NAMES
    assert not any(tensor.requires_grad for tensor in tensors.values())
    state = random_state(b, network)
    b.nn.load_state_arrays(network, state)
    for name, array in state.items():
        assert_equal(b.ops.to_numpy(tensors[name]), array)
    assert all(parameter.requires_grad for _, parameter in b.nn.named_parameters(network))


@judges("nn.state_arrays")
def copies_by_public_name(b: Backend) -> None:
    network = build(b)
    arrays = b.nn.state_arrays(network)
    assert tuple(arrays) == STATE_NAMES
    assert arrays["stem.bn.num_batches_tracked"].dtype == np.int64
    wanted = {name: array.copy() for name, array in arrays.items()}
    for array in arrays.values():
        array[...] = 77
    assert_state(b, network, wanted)


@judges("nn.load_state_arrays")
def copies_and_casts_what_it_loads(b: Backend) -> None:
    network = build(b)
    state = random_state(b, network)
    given = {name: array.astype("float64") for name, array in state.items()}
    b.nn.load_state_arrays(network, given)
    for array in given.values():
        array[...] = 77
    assert_state(b, network, state)
    halves = {name: np.ones(array.shape, "float16") for name, array in state.items()}
    b.nn.load_state_arrays(network, halves)
    assert_state(b, network, {name: np.ones_like(array) for name, array in state.items()})


@judges("nn.load_state_arrays")
def loads_nothing_that_does_not_fit(b: Backend) -> None:
    network = build(b)
    before, state = b.nn.state_arrays(network), random_state(b, network)
    renamed = {name.replace("heads", "tails"): array for name, array in state.items()}
    for wrong, text in (
        ({name: array for name, array in state.items() if name != "heads.0.bias"}, "heads.0.bias"),
        (state | {"extra": np.zeros(2)}, "extra"),
        (state | {"grid": np.zeros((3, 3))}, "grid"),
        (renamed, "tails.0.weight"),
        ({}, "grid"),
    ):
        assert_refused(text, b.nn.load_state_arrays, network, wrong)
        assert_state(b, network, before)


@judges("nn.register_buffer")
def saved_and_placed_but_not_trained(b: Backend) -> None:
    grid = np.array([[1.0, 2.0]])
    network = build(b, grid)
    grid[...] = 77.0
    assert "grid" in b.nn.state_arrays(network)
    assert_equal(b.nn.state_arrays(network)["grid"], np.array([[1.0, 2.0]]))
    assert_equal(b.ops.to_numpy(network.grid * 2.0), np.array([[2.0, 4.0]]))
    assert not network.grid.requires_grad
    if b.trains:
        assert "grid" not in dict(b.nn.named_parameters(network))
    b.nn.place(network, "cpu", "float32")
    assert b.ops.dtype_of(network.grid) == "float32"


@judges("nn.register_parameter")
def saved_and_placed(b: Backend) -> None:
    array = np.array([[1.0, 2.0]], "float32")
    module = b.nn.ModuleList([b.nn.Sequential()])
    b.nn.register_parameter(module[0], "scale", array)
    array[...] = 77.0
    assert_equal(b.nn.state_arrays(module)["0.scale"], np.array([[1.0, 2.0]], "float32"))
    b.nn.place(module, "cpu", "float64")
    assert b.ops.dtype_of(module[0].scale) == "float64"
    frozen = b.nn.frozen_copy(module)
    assert_equal(b.nn.state_arrays(frozen)["0.scale"], np.array([[1.0, 2.0]]))
    assert not frozen[0].scale.requires_grad


@judges("nn.register_parameter", trains=True)
def trained(b: Backend) -> None:
    module = b.nn.ModuleList([b.nn.Sequential()])
    b.nn.register_parameter(module[0], "scale", np.array([[1.0, 2.0]], "float32"))
    assert [name for name, _ in b.nn.named_parameters(module)] == ["0.scale"]
    scale = module[0].scale
    assert scale.requires_grad
    (gradient,) = b.autograd.gradients(b.ops.sum(module[0].scale[:, 1:] * 3.0), [scale])
    assert_equal(b.ops.to_numpy(gradient), np.array([[0.0, 3.0]], "float32"))


@judges("nn.place")
@judges("nn.load_state_arrays")
def casts_floating_tensors_only(b: Backend) -> None:
    network = build(b).eval()
    frozen = b.nn.frozen_copy(network)
    for module, wanted in ((network, True), (frozen, False)):
        state = random_state(b, module)
        b.nn.load_state_arrays(module, state)
        for dtype in ("float64", "float32"):
            assert b.nn.place(module, "cpu", dtype) is module
            cast = {n: a if a.dtype.kind == "i" else a.astype(dtype) for n, a in state.items()}
            assert_state(b, module, cast)
            (output,) = module(b.zeros((2, 2, 4, 4), dtype))
            assert b.ops.dtype_of(output) == dtype
            b.nn.load_state_arrays(module, state)
        if b.trains:
            assert all(p.requires_grad is wanted for _, p in b.nn.named_parameters(module))


@judges("nn.place")
def place_refuses_what_is_not_there(b: Backend) -> None:
    network = build(b)
    for dtype in ("int64", "half", "float"):
        assert_refused(dtype, b.nn.place, network, "cpu", dtype)
    assert_refused("cuda:99", b.nn.place, network, "cuda:99", "float32")


@judges("nn.set_trainable")
def gradients_reach_trainable_parameters_only(b: Backend) -> None:
    network = build(b)
    parameters = dict(b.nn.named_parameters(network))
    frozen = {name for name in NAMES if name.startswith("stem.bn")}
    x = b.ops.tensor(uniform((2, 2, 3, 3), "float32"))
    for trainable in (True, False, True):
        # An iterator, which can be read once.
        b.nn.set_trainable((parameters[name] for name in sorted(frozen)), trainable)
        assert {n for n, p in parameters.items() if not p.requires_grad} == (
            set() if trainable else frozen
        )
        # What an earlier step left must be gone, or an optimizer would go on using it.
        if not trainable:
            assert all(parameters[name].grad is None for name in frozen)
        learn(b, lambda images: network(images)[0], x, b.full((2, 1, 3, 3), 1.0))
        reached = {name for name, parameter in parameters.items() if parameter.grad is not None}
        assert reached == set(NAMES) - (set() if trainable else frozen)


@judges("nn.set_trainable")
def a_frozen_layer_keeps_gathering_statistics(b: Backend) -> None:
    network = build(b)
    b.nn.set_trainable([p for _, p in b.nn.named_parameters(network)], False)
    before = random_state(b, network)
    b.nn.load_state_arrays(network, before)
    (output,) = network(b.ops.tensor(uniform((2, 2, 3, 3), "float32", 5, 9)))
    assert not output.requires_grad
    after = b.nn.state_arrays(network)
    for name in before:
        assert np.array_equal(before[name], after[name]) is not name.startswith(
            ("stem.bn.running", "stem.bn.num")
        ), name


@judges("nn.pack")
def moves_memory_and_nothing_else(b: Backend) -> None:
    network = b.nn.place(build(b), "cpu", "float32")
    state = random_state(b, network)
    b.nn.load_state_arrays(network, state)
    b.nn.set_trainable([network.stem.bn.weight], False)
    before = list(b.nn.named_parameters(network))
    for _ in range(2):
        b.nn.pack(network)
        assert_state(b, network, state)
        after = list(b.nn.named_parameters(network))
        assert tuple(name for name, _ in after) == NAMES
        for (name, parameter), (_, earlier) in zip(after, before, strict=True):
            assert parameter is earlier
            assert parameter.requires_grad is (name != "stem.bn.weight")
        state = {name: array + 1 for name, array in state.items()}
        b.nn.load_state_arrays(network, state)
    b.nn.pack(build(b))  # of two dtypes
    b.nn.pack(b.nn.MaxPool2d(2, 2))  # of nothing


@judges("nn.pack")
def a_packed_module_learns_and_is_copied(b: Backend) -> None:
    networks = [b.nn.place(build(b), "cpu", "float32") for _ in range(2)]
    state = random_state(b, networks[0])
    found = []
    for network, pack in zip(networks, (lambda module: None, b.nn.pack), strict=True):
        b.nn.load_state_arrays(network, state)
        optimizer = b.optim.SGD([(dict(b.nn.named_parameters(network)), 0.01)])
        pack(network)
        x = b.ops.tensor(uniform((2, 2, 3, 3), "float32", 5, 9))
        learn(b, lambda x, n=network: b.ops.mean(n(x)[0] ** 2), x, b.full((), 1.0))
        optimizer.step([0.1], 0.9)
        found.append(b.nn.state_arrays(network))
        frozen = b.nn.frozen_copy(network)
        b.nn.load_state_arrays(network, state)
        assert_state(b, frozen, found[-1])
    assert not np.array_equal(found[0]["heads.0.weight"], state["heads.0.weight"])
    for name, array in found[0].items():
        # The same kernels on other addresses.
        assert_equal(found[1][name], array, 1e-5)


@judges("nn.frozen_copy")
def independent_in_evaluation_mode(b: Backend) -> None:
    network = build(b)
    state = random_state(b, network)
    b.nn.load_state_arrays(network, state)
    frozen = b.nn.frozen_copy(network)
    assert network.training and not frozen.training and not frozen.stem.bn.training
    x = b.ops.tensor(uniform((1, 2, 4, 4), "float32"))
    (output,) = frozen(x)
    assert not output.requires_grad
    before = b.ops.to_numpy(output)
    changed = {name: array + 1 for name, array in state.items()}
    b.nn.load_state_arrays(network, changed)
    assert_state(b, frozen, state)
    assert_equal(b.ops.to_numpy(frozen(x)[0]), before)
    b.nn.load_state_arrays(frozen, {name: array + 2 for name, array in state.items()})
    assert_state(b, network, changed)
    assert not np.allclose(b.ops.to_numpy(frozen(x)[0]), before)


@judges("nn.frozen_copy", trains=True)
def a_frozen_copy_has_no_gradient(b: Backend) -> None:
    network = build(b)
    frozen = b.nn.frozen_copy(network)
    assert not any(parameter.requires_grad for _, parameter in b.nn.named_parameters(frozen))
    assert all(parameter.requires_grad for _, parameter in b.nn.named_parameters(network))
    again = b.nn.frozen_copy(frozen)
    assert not any(parameter.requires_grad for _, parameter in b.nn.named_parameters(again))


@judges("nn.to_torchscript")
@judges("nn.from_torchscript")
def keeps_a_module_and_a_text_in_a_torchscript_file(b: Backend) -> None:
    network = build(b)
    b.nn.load_state_arrays(network, random_state(b, network))
    stem = b.nn.frozen_copy(network.stem)
    images = uniform((1, 2, 3, 4), "float32")
    x = b.ops.tensor(images)
    if not b.device.supports("torchscript"):
        assert_refused("TorchScript", b.nn.to_torchscript, stem, x, "")
        assert_refused("TorchScript", b.nn.from_torchscript, b"")
        return
    with warnings.catch_warnings(record=True) as caught:
        content = b.nn.to_torchscript(stem, x, '{"name": "é"}')
        found = b.nn.from_torchscript(content)(x)
    assert extra_text(content) == '{"name": "é"}' and not caught
    assert not found.requires_grad
    np.testing.assert_allclose(b.ops.to_numpy(found), in_numpy(b, stem, images), rtol=1e-5)
    for damaged in (b"", b"text", content[:-100]):
        assert_refused("", b.nn.from_torchscript, damaged)


def extra_text(content: bytes) -> str:
    """The text beside a module in a TorchScript file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/extra/metadata.json"))
        return archive.read(name).decode()


def in_numpy(b: Backend, stem: Any, images: np.ndarray) -> np.ndarray:
    """What the stem of `build` computes in evaluation."""
    state = b.nn.state_arrays(stem)
    mixed = np.einsum("oi,bihw->bohw", state["conv.weight"][:, :, 0, 0], images)
    scale = state["bn.weight"] / np.sqrt(state["bn.running_var"] + 1e-5)
    shift = state["bn.bias"] - scale * state["bn.running_mean"]
    return mixed * scale[:, None, None] + shift[:, None, None]


@judges("nn.lay_channels_last")
def weights_are_reordered_in_memory_alone(b: Backend) -> None:
    layer = b.nn.Conv2d(3, 4, 3)
    if not b.device.supports("channels_last"):
        assert_refused("channels_last", b.nn.lay_channels_last, layer)
        return
    before = b.nn.state_arrays(layer)
    tensors = dict(b.nn.named_parameters(layer))
    x = b.ops.tensor(uniform((2, 3, 5, 6), "float32"))
    wanted = b.ops.to_numpy(layer(x))
    b.nn.lay_channels_last(layer)
    assert all(y is tensors[name] for name, y in b.nn.named_parameters(layer))
    assert tensors["weight"].permute(0, 2, 3, 1).is_contiguous()
    for name, array in b.nn.state_arrays(layer).items():
        assert_equal(array, before[name])
    assert_equal(b.ops.to_numpy(layer(x)), wanted, 1e-6)
    backward(b, {"weight": tensors["weight"]}, {"weight": uniform((4, 3, 3, 3), "float32")})
    assert_equal(b.ops.to_numpy(tensors["weight"].grad), uniform((4, 3, 3, 3), "float32"))
