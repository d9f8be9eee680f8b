"""The trial of batched updates that precedes --multi_tensor_optimizer on a GPU."""

import numpy as np
import pytest

from duet.backend import multi_tensor, ops, optim
from duet.backend.modules import OfMemory
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


def test_a_failure_keeps_nothing_of_other_tensors():
    kept = OfMemory(lambda averages, values: averages[0] / values[0])
    assert kept([2], [1]) == 2
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            kept([2], [0])
