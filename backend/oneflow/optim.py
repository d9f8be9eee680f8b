"""Optimizers and EMA for OneFlow, by kernels of `oneflow.optim`; documented in `contract.Optim`."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import oneflow
from oneflow import Tensor

from duet.backend import checks, updates
from duet.backend.oneflow import ops
from duet.backend.updates import BETA2, Update


def _kernel(name: str, run: Callable[..., None], *states: str) -> Callable[..., None]:
    """Return the kernel that updates the tensors of one parameter."""
    operation = oneflow.stateful_op(name)
    for argument in ("model", "model_diff", *states):
        operation = operation.Input(argument)
    return partial(run, operation.Build())


plain_sgd = _kernel("sgd_update", oneflow._C.dispatch_sgd_update)
nesterov_sgd = _kernel("momentum_update", oneflow._C.dispatch_momentum_update, "momentum")
adam = _kernel("adam_update", oneflow._C.dispatch_adam_update, "m", "v")


class Kernels(updates.Optimizer):
    FUSED = False  # whether to update all tensors by one kernel, where there is one

    def zero_grad(self) -> None:
        # Not None, which leaves old sums in OneFlow's buffers under data parallelism.
        for x in self.parameters.values():
            x._zero_grad_(False)

    def skips(self, lost: Tensor | None) -> bool:
        return ops.is_one(lost)

    def state_like(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        return oneflow.zeros_like(x) if state is None else state


class SGD(Kernels, updates.SGD):
    def update_(self, update: Update) -> None:
        weights, gradients, states, constants, _ = update
        rules = {"dampening": 0.0, "nesterov": True, "maximize": False} if states else {}
        if not (self.FUSED and fit_kernels(weights)):
            if states:
                rules["beta"] = constants.momentum
            run = nesterov_sgd if states else plain_sgd
            for tensors in zip(weights, gradients, *states, strict=True):
                run(tensors, learning_rate=constants.rate, l2=constants.decay, **rules)
            return
        run = oneflow._C.multi_tensor_sgd_update
        if states:
            run = partial(
                oneflow._C.multi_tensor_momentum_update,
                momentum_buf=states[0],
                momentum=constants.momentum,
            )
        run(
            model=weights,
            model_diff=gradients,
            scale=1.0,
            weight_decay=constants.decay,
            learning_rate_val=constants.rate,
            **rules,
        )


class Adam(Kernels, updates.Adam):
    def update_(self, update: Update) -> None:
        weights, gradients, (first, second), constants, _ = update
        if constants.shrink != 1.0:
            for x in weights:
                x.mul_(constants.shrink)
        settings = {
            "l2": constants.decay,
            "beta1": constants.momentum,
            "beta2": BETA2,
            "epsilon": constants.epsilon,
            "do_bias_correction": False,
        }
        if not (self.FUSED and fit_kernels(weights)):
            for tensors in zip(weights, gradients, first, second, strict=True):
                adam(
                    tensors,
                    learning_rate=constants.rate,
                    amsgrad=False,
                    bias_correction1=1.0,
                    bias_correction2=1.0,
                    **settings,
                )
            return
        oneflow._C.multi_tensor_adam_update(
            model=weights,
            model_diff=gradients,
            m=first,
            v=second,
            learning_rate_val=constants.rate,
            bias_correction1_val=1.0,
            bias_correction2_val=1.0,
            scale=1.0,
            weight_decay=0.0,
            **settings,
        )


class AdamW(Adam, updates.AdamW):
    pass


def ema_update_(
    averages: Sequence[Tensor],
    values: Sequence[Tensor],
    decay: float,
    lost: Tensor | None = None,
) -> None:
    checks.equal_counts(len(values), len(averages), "values")
    if ops.is_one(lost):
        return
    with oneflow.no_grad():
        for average, value in zip(averages, values, strict=True):
            # average * decay + value * (1 - decay) would round even if both are equal.
            average.add_((value - average) * (1.0 - decay))


def fit_kernels(tensors: Iterable[Tensor]) -> bool:
    """Return whether the kernels of many tensors accept these."""
    return all(x.is_cuda and x.dtype == oneflow.float32 for x in tensors)
