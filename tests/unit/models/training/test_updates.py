"""The trial of batched updates that precedes --multi_tensor_optimizer on a GPU."""

import gc
import weakref

import numpy as np
import pytest

from duet.backend import multi_tensor, ops, optim
from duet.backend.modules import OfMemory, float_tensors
from duet.models.training import updates


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_batched_updates_agree_with_plain_ones(name):
    assert updates.trial_problem(name, "cpu") == ""


def test_a_missing_or_wrong_kernel_leaves_the_plain_path(monkeypatch, caplog):
    def missing(*_):
        raise RuntimeError("kernel not found\nfor this GPU")

    def wrong(averages, values, decay, lost):
        ops.ema_update_(averages, values, decay * 1.01, lost)

    for kernel, reason in (
        (missing, "kernel not found"),
        (wrong, "EMA of tensor 0 differs by 0.0"),
    ):
        monkeypatch.setattr(multi_tensor, "ema_update_", kernel)
        assert updates.trial_problem("SGD", "cpu").startswith(reason)
    monkeypatch.setattr(multi_tensor, "SGD", lambda groups: optim.SGD([(groups[0][0], np.nan)]))
    assert "differs by nan" in updates.trial_problem("SGD", "cpu")
    monkeypatch.setattr(updates, "CPU", "another device")
    with caplog.at_level("INFO", "train"):
        assert not updates.choose_updates("SGD", "cpu")
    assert "--multi_tensor_optimizer: using the plain path (" in caplog.text


def test_the_tensors_of_a_model_that_is_gone_are_not_kept():
    class Value:
        def is_floating_point(self):
            return True

    class Module:
        _buffers, _non_persistent_buffers_set = {}, frozenset()

        def __init__(self):
            self._parameters = {"weight": Value()}

        def modules(self):
            return [self]

    kept = OfMemory(lambda averages, values: (averages, values))
    average, model = Module(), Module()
    averages, values = float_tensors(average)(), float_tensors(model)()
    assert kept(averages, values) is kept(averages, values)
    gone = [weakref.ref(x) for x in (*averages, *values)]
    del averages, values, average, model
    gc.collect()
    assert [x() for x in gone] == [None, None]


def test_a_failure_keeps_nothing_of_other_tensors():
    kept = OfMemory(lambda averages, values: averages[0] / values[0])
    assert kept([2], [1]) == 2
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            kept([2], [0])
