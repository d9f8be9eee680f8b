"""Mistakes in `optim`, `autograd`, `amp`, `device` and `dist`."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from duet.backend.processes import this_process
from tests.conformance.judging import Backend, Build, register_wrong, returning, with_arguments

ADAM = ("Adam", "AdamW")


class Groups:
    """The groups of an optimizer that is made wrong, for a mistake in its update."""

    def __init__(self, b: Backend, groups: Any) -> None:
        self.b, self.groups = b, groups

    def shrink(self, factors: Any, with_gradient: bool = True) -> None:
        """Multiply the weights of each group that have a gradient, or those that have none."""
        for (group, _), factor in zip(self.groups, factors, strict=False):
            for x in group.values():
                if (x.grad is not None) is with_gradient:
                    self.put(x, self.b.ops.to_numpy(x) * np.float32(factor))

    def put(self, x: Any, array: np.ndarray) -> None:
        x.detach().copy_(self.b.ops.tensor(np.asarray(array).astype(self.b.ops.dtype_of(x))))


def optimizer(mistake: str) -> Build:
    """Derive from an optimizer, with the named mistake."""

    def build(b: Backend, right: Any) -> Any:
        return optimizer_of(b, right, mistake)

    return build


def optimizer_of(b: Backend, right: Any, mistake: str) -> Any:
    class Wrong(right):
        def __init__(self, groups: Any) -> None:
            self.given = Groups(b, groups)
            if mistake in ("no decay", "decays after the step", "decays without the rate"):
                groups = [(group, 0.0) for group, _ in groups]
            super().__init__(groups)

        def step(self, learning_rates: Any, momentum: float, lost: Any = None) -> None:
            given = self.given
            decays = [decay for _, decay in given.groups]
            factors = [1 - r * d for r, d in zip(learning_rates, decays, strict=False)]
            if mistake == "decays without the rate":
                given.shrink([1 - decay for decay in decays])
            if mistake == "shrinks unused weights":
                given.shrink(factors, with_gradient=False)
            if mistake == "uses one rate":
                learning_rates = [learning_rates[0]] * len(learning_rates)
            if mistake == "takes any number of rates":
                learning_rates = [*learning_rates, *learning_rates][: len(decays)]
            if mistake == "takes any momentum":
                momentum = min(max(momentum, 0.0), 0.9)
            if mistake == "keeps beta1 at 0.9":
                momentum = 0.9
            before = [[b.ops.to_numpy(x) for x in group.values()] for group, _ in given.groups]
            updates = self.begin_uncorrected() if mistake == "does not correct the bias" else 0
            super().step(learning_rates, momentum, None if mistake == "ignores lost" else lost)
            if mistake == "does not correct the bias":
                super().load_state_arrays({**super().state_arrays(), "updates": updates})
            if mistake == "decays after the step":
                given.shrink(factors)
            if mistake == "dampens":
                damped = {n: v * (1 - momentum) for n, v in super().state_arrays().items()}
                super().load_state_arrays(damped)
            if mistake == "has no Nesterov momentum":
                self.step_by_velocity(before, learning_rates)

        def begin_uncorrected(self) -> np.ndarray:
            """Begin a step as if so many had been made that no correction is left."""
            state = super().state_arrays()
            super().load_state_arrays({**state, "updates": np.array(10**6)})
            return np.array(int(state.get("updates", 0)) + 1)

        def step_by_velocity(self, before: Any, learning_rates: Any) -> None:
            velocity = super().state_arrays()
            for (group, _), arrays, rate in zip(
                self.given.groups, before, learning_rates, strict=True
            ):
                for (name, x), array in zip(group.items(), arrays, strict=True):
                    if f"{name}.momentum" in velocity and x.grad is not None:
                        self.given.put(x, array - rate * velocity[f"{name}.momentum"])

        def uncount_step(self) -> None:
            if mistake == "takes back the step too":
                super().load_state_arrays({})
            if mistake != "counts lost steps":
                super().uncount_step()

        def zero_grad(self) -> None:
            if mistake != "keeps gradients":
                super().zero_grad()

        def state_arrays(self) -> Any:
            found = super().state_arrays()
            if mistake == "aliases" and found:
                found = vars(self).setdefault("kept", found)
            return found

        def load_state_arrays(self, arrays: Any) -> None:
            if mistake == "loads nothing":
                return
            if mistake == "keeps old state":
                arrays = {**super().state_arrays(), **arrays}
            if mistake == "forgets the count" and arrays:
                arrays = {**arrays, "updates": np.array(1)}
            try:
                super().load_state_arrays(arrays)
            except ValueError:
                if mistake != "loads anything":
                    raise

    return Wrong


for name in ADAM:
    swapped = ADAM[name == "Adam"]
    register_wrong(
        (f"optim.{name}", "decays as the other", lambda b, _, n=swapped: getattr(b.optim, n)),
        *(
            (f"optim.{name}", mistake, optimizer(mistake))
            for mistake in (
                "does not correct the bias",
                "keeps beta1 at 0.9",
                "takes any momentum",
                "shrinks unused weights",
                "forgets the count",
                "ignores lost",
                "counts lost steps",
            )
        ),
    )
register_wrong(
    ("optim.AdamW", "decays without the rate", optimizer("decays without the rate")),
    *(
        (f"{owner}", mistake, optimizer(mistake))
        for owner, mistake in (
            ("optim.SGD", "has no Nesterov momentum"),
            ("optim.SGD", "decays after the step"),
            ("optim.SGD", "no decay"),
            ("Optimizer.step", "dampens"),
            ("Optimizer.step", "uses one rate"),
            ("Optimizer.step", "takes any number of rates"),
            ("Optimizer.step", "shrinks unused weights"),
            ("Optimizer.step", "ignores lost"),
            ("Optimizer.uncount_step", "takes back the step too"),
            ("Optimizer.zero_grad", "keeps gradients"),
            ("Optimizer.state_arrays", "aliases"),
            ("Optimizer.load_state_arrays", "loads nothing"),
            ("Optimizer.load_state_arrays", "loads anything"),
            ("Optimizer.load_state_arrays", "keeps old state"),
        )
    ),
)


def ema_of_two_products(b: Backend, right: Any) -> Any:
    def ema_update_(averages: Any, values: Any, decay: float, lost: Any = None) -> None:
        for average, value in zip(averages, values, strict=True):
            average.copy_(average * decay + value.detach() * (1.0 - decay))

    return ema_update_


def ema_of_copies(b: Backend, right: Any) -> Any:
    return lambda averages, *args: right([average * 1.0 for average in averages], *args)


def swapped_ema(b: Backend, right: Any) -> Any:
    return lambda averages, values, decay, lost=None: right(averages, values, 1.0 - decay, lost)


register_wrong(
    ("optim.ema_update_", "swaps the weights", swapped_ema),
    ("optim.ema_update_", "averages though lost", with_arguments(lost=None)),
    ("optim.ema_update_", "rounds where nothing changes", ema_of_two_products),
    ("optim.ema_update_", "updates copies", ema_of_copies),
)


def halved_backward(b: Backend, right: Any) -> Any:
    def value_and_backward(model: Any, loss: Any, images: Any, targets: Any, stage: Any) -> Any:
        terms = right(model, loss, images, targets, stage)
        terms.total = terms.total * 0.5
        return terms

    return value_and_backward


def clip_each(b: Backend, right: Any) -> Any:
    def clip_gradients(parameters: Any, max_norm: float) -> Any:
        parameters = list(parameters)
        joint = right(parameters, np.inf)
        for parameter in parameters:
            right([parameter], max_norm)
        return joint

    return clip_gradients


def clip_in_single_precision(b: Backend, right: Any) -> Any:
    def clip_gradients(parameters: Any, max_norm: float) -> Any:
        parameters = list(parameters)
        norm = right(parameters, max_norm)
        if float(b.ops.to_numpy(norm)) ** 2 < float(np.finfo("float32").max):
            return norm
        b.amp.scale_gradients_(parameters, 0.0)
        return norm * np.inf

    return clip_gradients


def gradients_of_infinite_zero(b: Backend, right: Any) -> Any:
    def gradients(output: Any, inputs: Any) -> Any:
        if output.ndim or not all(x.requires_grad for x in inputs):
            raise ValueError(str(tuple(output.shape)))
        for x in inputs:
            output = output + b.ops.cast(b.ops.sum(x * 0.0), b.ops.dtype_of(output))
        found = right(output, inputs)
        return [g + x.detach() * 0.0 for g, x in zip(found, inputs, strict=True)]

    return gradients


def compiled_without_gradient(b: Backend, right: Any) -> Any:
    return lambda function, most_shapes=1: lambda x, *others: function(x.detach(), *others)


def compiled_for_the_first_shape(b: Backend, right: Any) -> Any:
    def compiled(function: Any, most_shapes: int = 1) -> Any:
        kept: list[Any] = []
        return lambda *inputs: kept.append(function(*inputs)) or kept[0]

    return compiled


register_wrong(
    ("autograd.no_grad", "does nothing", lambda b, _: nullcontext),
    ("autograd.recording", "does nothing", lambda b, _: nullcontext),
    ("autograd.variable", "requires no gradient", lambda b, _: b.ops.tensor),
    ("autograd.gradients", "is NaN beside infinity", gradients_of_infinite_zero),
    ("autograd.value_and_backward", "halves the loss", halved_backward),
    ("autograd.clip_gradients", "clips each alone", clip_each),
    ("autograd.clip_gradients", "squares in float32", clip_in_single_precision),
    ("autograd.compile_problem", "is no reason", returning("")),
    ("autograd.compiled", "has no gradient", compiled_without_gradient),
    ("autograd.compiled", "answers as it did first", compiled_for_the_first_shape),
)


def cast_for_good(b: Backend, right: Any) -> Any:
    """Leave copies in place of the weights, which the optimizer does not know."""

    @contextmanager
    def cast_together(module: Any, dtype: str) -> Iterator[None]:
        yield
        for part in module.modules():
            if getattr(part, "weight", None) is not None:
                part.weight = copy.deepcopy(part.weight)

    return cast_together


def failing(b: Backend, right: Any) -> Any:
    def fail(*args: Any) -> None:
        raise AssertionError("invalid device cpu")

    return fail


def device_of_rank(b: Backend, right: Any) -> Any:
    """Return OneFlow's own name of a rank's CPU."""

    def resolve(name: str) -> str:
        own, rank = right(name), this_process().rank
        return own if rank == 0 else f"{own}:{rank}"

    return resolve


def filling(b: Backend, right: Any) -> Any:
    return lambda memory, device: memory.fill(0)


register_wrong(
    ("amp.supported", "names what no GPU is needed for", returning(("int8",))),
    ("amp.supported", "takes any device", returning(())),
    ("amp.preferred", "takes a CPU for a GPU", returning("bfloat16")),
    ("amp.preferred", "takes any device", returning("float32")),
    ("amp.autocast", "does nothing", lambda b, _: lambda *args: nullcontext()),
    ("amp.cast_together", "keeps copies", cast_for_good),
    ("amp.cast_for_good", "does nothing", returning(None)),
    ("amp.scale_gradients_", "scales copies", returning(None)),
    (
        "device.resolve",
        "takes any GPU on trust",
        lambda b, _: lambda name: "cpu" if name in ("", "cpu") else "cuda:0",
    ),
    ("device.resolve", "numbers a rank's CPU", device_of_rank),
    ("device.synchronize", "knows GPUs only", failing),
    ("device.peak_memory", "is not called", returning(2**30)),
    ("device.used_memory", "takes a CPU for a GPU", returning(2**30)),
    ("device.free_memory", "takes a CPU for a GPU", returning(2**30)),
    ("device.describe", "is several lines", returning("CPU\n2.13.0\n0.9.0")),
    ("device.rounds_to_tf32", "takes a CPU for a GPU", returning(True)),
    ("device.compute_exactly", "knows GPUs only", failing),
    ("device.shapes_repeat", "knows GPUs only", failing),
    ("device.is_out_of_memory", "takes any error for it", returning(True)),
    (
        "device.is_out_of_memory",
        "knows one kind",
        lambda b, _: lambda error: isinstance(error, MemoryError),
    ),
    ("device.host_threads", "counts from none", returning(0)),
    ("device.set_host_threads", "takes any number", returning(None)),
    ("device.supports", "denies what it does not know", returning(False)),
    ("device.page_lock", "clears the memory", filling),
    ("device.page_lock", "knows GPUs only", failing),
    ("device.copies_end", "gives nothing to wait with", returning(None)),
    ("device.mark", "is always the same", returning(0.0)),
    (
        "device.seconds_between",
        "are milliseconds",
        lambda b, right: lambda start, end: 1000 * right(start, end),
    ),
)


def sum_that_counts_twice(b: Backend, right: Any) -> Any:
    def sum_(x: Any) -> None:
        doubled = x.detach()
        doubled += x.detach()
        right(doubled)

    return sum_


def gather_that_aliases(b: Backend, right: Any) -> Any:
    def all_gather(array: np.ndarray) -> list[np.ndarray]:
        found = right(array)
        return [array] if len(found) == 1 else found

    return all_gather


def data_parallel_of_a_copy(b: Backend, right: Any) -> Any:
    def data_parallel(module: Any) -> Any:
        copied = b.nn.frozen_copy(module)
        parameters = dict(b.nn.named_parameters(copied))
        b.nn.set_trainable(parameters.values(), True)
        for name, parameter in b.nn.named_parameters(module):
            parameter.grad = b.ops.zeros(parameters[name].shape, "float64")
        return right(copied.train())

    return data_parallel


def averaging_that_forgets(b: Backend, right: Any) -> Any:
    """Keep only the gradients of the last of the accumulated passes."""

    @contextmanager
    def averaging(module: Any, last: bool, stage: Any = None) -> Iterator[None]:
        for parameter in module.parameters() if last else ():
            if parameter.grad is not None:
                parameter.grad.zero_()
        with right(module, last, stage):
            yield

    return averaging


def synchronization_that_stops_the_statistics(b: Backend, right: Any) -> Any:
    def synchronize_batch_norm(module: Any) -> None:
        for part in module.modules():
            if isinstance(part, b.nn.BatchNorm2d):
                part.eval()

    return synchronize_batch_norm


register_wrong(
    ("dist.start", "needs other processes", failing),
    ("dist.stop", "returns something", returning(True)),
    ("dist.sum_", "adds the rank's own twice", sum_that_counts_twice),
    ("dist.broadcast_", "sends zeros", lambda b, _: lambda x: x.detach().zero_()),
    ("dist.all_gather", "returns the very array", gather_that_aliases),
    ("dist.data_parallel", "trains a copy", data_parallel_of_a_copy),
    ("dist.averaging", "forgets what was accumulated", averaging_that_forgets),
    ("nn.synchronize_batch_norm", "evaluates", synchronization_that_stops_the_statistics),
)
