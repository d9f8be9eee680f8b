"""Checks of `contract.Dist` and of BatchNorm over ranks.

They hold for any number of processes: NumPy knows what every rank has. The suite runs them in one;
`tests/distributed` runs the same checks in two.
"""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np

from duet.backend.processes import this_process
from tests.conformance.checks_modules import build
from tests.conformance.judging import Backend, assert_equal, assert_refused, judges, uniform


def of_ranks(shape: tuple[int, ...], dtype: str, seed: int = 0) -> list[np.ndarray]:
    """Return a different array for each rank."""
    low, high = (0, 100) if dtype in ("int64", "uint8") else (-2, 2)
    seeds = (1000 * seed + rank for rank in range(this_process().world_size))
    return [uniform(shape, dtype, low, high, seed) for seed in seeds]


def mine(arrays: list[np.ndarray]) -> np.ndarray:
    return arrays[this_process().rank]


@judges("dist.start")
@judges("dist.stop")
def one_process_needs_no_others(b: Backend) -> None:
    if this_process().world_size > 1:  # the test's worker has joined before the first check
        return
    assert b.dist.start("cpu", 10.0) is None
    x = b.ops.tensor(np.ones(2, np.float32))
    b.dist.sum_(x)
    assert_equal(b.ops.to_numpy(x), np.ones(2, np.float32))
    assert b.dist.stop() is None


@judges("dist.sum_")
def sums_in_place(b: Backend) -> None:
    for dtype in ("float32", "float64", "int64"):
        for shape in ((3,), (2, 3), ()):
            arrays = of_ranks(shape, dtype)
            x = b.ops.tensor(mine(arrays))
            b.dist.sum_(x)
            wanted = np.sum(arrays, axis=0).astype(dtype)
            assert_equal(b.ops.to_numpy(x), wanted)
    parameter = b.autograd.variable(np.ones(2, np.float32))
    b.dist.sum_(parameter)
    assert_equal(b.ops.to_numpy(parameter), np.full(2, this_process().world_size, np.float32))


@judges("dist.broadcast_")
def takes_what_rank_0_has(b: Backend) -> None:
    for dtype in ("float32", "float64", "int64"):
        arrays = of_ranks((2, 3), dtype)
        x = b.ops.tensor(mine(arrays))
        b.dist.broadcast_(x)
        assert_equal(b.ops.to_numpy(x), arrays[0])


@judges("dist.all_gather")
def gathers_rows_of_unequal_numbers(b: Backend) -> None:
    for dtype in ("float32", "float64", "int64", "uint8"):
        for shape in ((), (2,), (2, 1)):
            arrays = [
                uniform((rank + 1, *shape), "float64", 0, 100, rank).astype(dtype)
                for rank in range(this_process().world_size)
            ]
            found = b.dist.all_gather(mine(arrays))
            assert len(found) == len(arrays)
            for one, wanted in zip(found, arrays, strict=True):
                assert_equal(one, wanted)


@judges("dist.all_gather")
def gathers_from_ranks_that_have_nothing(b: Backend) -> None:
    arrays = [uniform((rank, 2), seed=rank) for rank in range(this_process().world_size)]
    for one, wanted in zip(b.dist.all_gather(mine(arrays)), arrays, strict=True):
        assert_equal(one, wanted)
    for found in b.dist.all_gather(np.zeros((0, 3), np.uint8)):
        assert_equal(found, np.zeros((0, 3), np.uint8))


@judges("dist.all_gather")
def what_was_gathered_is_a_copy(b: Backend) -> None:
    array = np.ones(3)
    found = b.dist.all_gather(array)[this_process().rank]
    array[:] = 7.0
    assert_equal(found, np.ones(3))


@judges("dist.all_gather")
def gathers_no_other_dtypes(b: Backend) -> None:
    for array in (np.zeros(2, np.int32), np.array(["a"]), np.zeros(())):
        assert_refused("all_gather", b.dist.all_gather, array)


def network(b: Backend) -> Any:
    """Return a convolution and BatchNorm with the same weights on every rank."""

    module = b.nn.place(build(b).stem, "cpu", "float64")
    state = b.nn.state_arrays(module)
    load = {
        name: array if array.dtype.kind == "i" else uniform(array.shape, "float64", 0.5, 2.0, seed)
        for seed, (name, array) in enumerate(state.items())
    }
    b.nn.load_state_arrays(module, load)
    return module


def backward(b: Backend, called: Any, images: np.ndarray, weights: np.ndarray) -> Any:
    """Return the output; add gradients of the sum of the weighted output to the parameters'."""
    kept = []

    def loss(output: Any, factors: Any) -> Any:
        kept.append(output)
        return SimpleNamespace(total=b.ops.sum(output * factors))

    x, factors = b.ops.tensor(images), b.ops.tensor(weights)
    b.autograd.value_and_backward(called, loss, x, factors, lambda name: nullcontext())
    return b.ops.to_numpy(kept[0].detach())


def gradients(b: Backend, module: Any) -> dict[str, np.ndarray]:
    return {name: b.ops.to_numpy(p.grad) for name, p in b.nn.named_parameters(module)}


def gradients_of_each_rank(
    b: Backend, images: list[np.ndarray], weights: list[np.ndarray]
) -> list[dict[str, np.ndarray]]:
    """Return the gradients of each rank's pass alone, computed here one after the other."""
    found = []
    for x, factors in zip(images, weights, strict=True):
        module = network(b)
        backward(b, module, x, factors)
        found.append(gradients(b, module))
    return found


def means(of_each: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.mean([one[name] for one in of_each], axis=0) for name in of_each[0]}


def of_pass(number: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return each rank's images of a pass, and the weights of its outputs."""
    images = of_ranks((2, 2, 3, 3), "float64", 2 * number)
    return images, of_ranks((2, 3, 3, 3), "float64", 2 * number + 1)


def run_pass(b: Backend, parallel: Any, arrays: Any, last: bool = True, stage: Any = None) -> Any:
    images, weights = arrays
    with b.dist.averaging(parallel, last, *([] if stage is None else [stage])):
        return backward(b, parallel, mine(images), mine(weights))


def assert_gradients(b: Backend, module: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    for name, gradient in gradients(b, module).items():
        assert_equal(gradient, wanted[name], tolerance=tolerance)


@judges("dist.data_parallel")
def gradients_are_averaged_and_statistics_stay_each_ranks_own(b: Backend) -> None:
    module, alone, arrays = network(b), network(b), of_pass()
    wanted = means(gradients_of_each_rank(b, *arrays))
    found = run_pass(b, b.dist.data_parallel(module), arrays)
    assert_gradients(b, module, wanted)
    assert_equal(found, backward(b, alone, *map(mine, arrays)), tolerance=1e-12)
    for name, array in b.nn.state_arrays(alone).items():
        assert_equal(b.nn.state_arrays(module)[name], array, tolerance=1e-12)


@judges("dist.averaging")
def averages_once_what_was_accumulated(b: Backend) -> None:
    module, passes = network(b), [of_pass(number) for number in range(3)]
    parallel = b.dist.data_parallel(module)
    of_passes = [gradients_of_each_rank(b, *arrays) for arrays in passes]
    own = [ranks[this_process().rank] for ranks in of_passes]
    for number, arrays in enumerate(passes):
        run_pass(b, parallel, arrays, last=number == 2)
        found = own[: number + 1] if number < 2 else list(map(means, of_passes))
        assert_gradients(b, module, {name: sum(x[name] for x in found) for name in own[0]})


@judges("dist.averaging")
def what_follows_the_backward_pass_counts_in_its_stage(b: Backend) -> None:
    entered: list[str] = []

    def stage(name: str) -> Any:
        entered.append(name)
        return nullcontext()

    run_pass(b, b.dist.data_parallel(network(b)), of_pass(), stage=stage)
    assert set(entered) <= {"backward"}


@judges("dist.averaging")
def gradients_that_were_set_to_zero_do_not_come_back(b: Backend) -> None:
    module, arrays = network(b), of_pass()
    parallel = b.dist.data_parallel(module)
    optimizer = b.optim.SGD([(dict(b.nn.named_parameters(module)), 0.0)])
    wanted = means(gradients_of_each_rank(b, *arrays))
    for _ in range(3):
        run_pass(b, parallel, arrays)
        assert_gradients(b, module, wanted)
        optimizer.zero_grad()


@judges("dist.averaging")
def a_rank_without_images_adds_nothing(b: Backend) -> None:
    images, weights = of_pass()
    of_each = gradients_of_each_rank(b, images, weights)
    if len(images) > 1:
        images[-1], weights[-1] = images[-1][:0], weights[-1][:0]
        of_each[-1] = {name: np.zeros_like(array) for name, array in of_each[-1].items()}
    module = network(b)
    run_pass(b, b.dist.data_parallel(module), (images, weights))
    assert_gradients(b, module, means(of_each))
    for name, array in b.nn.state_arrays(module).items():
        assert np.isfinite(array).all(), name


@judges("nn.synchronize_batch_norm")
def statistics_are_those_of_all_images(b: Backend) -> None:
    for counts in ([2] * this_process().world_size, [3, *[0] * (this_process().world_size - 1)]):
        images = [uniform((n, 2, 3, 3), seed=k) for k, n in enumerate(counts)]
        weights = [uniform((n, 3, 3, 3), seed=50 + k) for k, n in enumerate(counts)]
        alone = network(b)
        wanted = backward(b, alone, np.concatenate(images), np.concatenate(weights))
        module = network(b)
        b.nn.synchronize_batch_norm(module)
        parallel = b.dist.data_parallel(module)
        with b.dist.averaging(parallel, True):
            found = backward(b, parallel, mine(images), mine(weights))
        start = sum(counts[: this_process().rank])
        assert_equal(found, wanted[start : start + len(mine(images))], tolerance=1e-12)
        for name, array in b.nn.state_arrays(alone).items():
            # OneFlow's own layer, which worked here alone, forms 1 - momentum in float32.
            assert_equal(b.nn.state_arrays(module)[name], array, tolerance=1e-7)
        for name, gradient in gradients(b, module).items():
            whole = b.ops.to_numpy(dict(b.nn.named_parameters(alone))[name].grad)
            # The ranks' losses add up to the whole one: the mean is that of so many ranks.
            assert_equal(gradient * this_process().world_size, whole, tolerance=1e-11)


@judges("nn.synchronize_batch_norm")
def evaluation_uses_the_running_statistics(b: Backend) -> None:
    module, alone = network(b), network(b)
    b.nn.synchronize_batch_norm(module)
    x = b.ops.tensor(uniform((2, 2, 3, 3)))
    found = b.ops.to_numpy(module.eval()(x).detach())
    assert_equal(found, b.ops.to_numpy(alone.eval()(x).detach()))
    frozen = b.nn.frozen_copy(module)
    assert_equal(b.ops.to_numpy(frozen(x)), found)


@judges("nn.synchronize_batch_norm")
def a_large_mean_does_not_cancel(b: Backend) -> None:
    module = b.nn.BatchNorm2d(3)
    b.nn.synchronize_batch_norm(module)
    images = [uniform((2, 3, 4, 4), "float64", 1000.0, 1001.0, k)
              for k in range(this_process().world_size)]  # fmt: skip
    found = b.ops.to_numpy(module(b.ops.tensor(mine(images).astype("float32"))).detach())
    whole = np.concatenate(images).astype("float32").astype("float64")
    mean, variance = whole.mean((0, 2, 3)), whole.var((0, 2, 3))
    centred = mine(images).astype("float32") - mean.reshape(1, 3, 1, 1)
    wanted = centred / np.sqrt(variance + 1e-5).reshape(1, 3, 1, 1)
    # float32 holds numbers near 1000 to 6e-5, and the deviation is about 0.3.
    assert_equal(found, wanted.astype("float32"), tolerance=5e-4)


@judges("nn.synchronize_batch_norm")
def one_value_of_all_ranks_is_refused(b: Backend) -> None:
    module = b.nn.BatchNorm2d(3)
    b.nn.synchronize_batch_norm(module)
    images = [np.ones((n, 3, 1, 1), "float32") for n in [1] + [0] * (this_process().world_size - 1)]
    assert_refused("several values", module, b.ops.tensor(mine(images)))
    for name, array in b.nn.state_arrays(module).items():
        assert np.isfinite(array).all(), name
