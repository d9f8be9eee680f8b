"""What flags for several processes do where there is one."""

import logging

import numpy as np
import pytest

from duet.backend import device, nn, ops
from duet.models.training import start
from duet.utils.errors import UserError


def norm_of(sync_bn=False, half_gradients=False):
    """A BatchNorm layer in training, as `parallelize` leaves it in this process."""
    return start.parallelize(nn.BatchNorm2d(2).train(), sync_bn, half_gradients)


def test_a_flag_for_several_processes_is_named_where_there_is_one(caplog):
    caplog.set_level(logging.INFO, "train")
    norm_of()
    assert caplog.messages == []
    norm_of(sync_bn=True)
    assert caplog.messages == ["--sync-bn has no effect in a single process"]


def test_half_gradients_of_one_process_are_named_or_refused(caplog):
    caplog.set_level(logging.INFO, "train")
    if not device.supports("half_gradients"):
        with pytest.raises(UserError, match="does not support bfloat16 gradients; leave it"):
            norm_of(half_gradients=True)
        return
    norm_of(half_gradients=True)
    assert caplog.messages == ["--half-gradients has no effect in a single process"]


def test_sync_bn_in_one_process_keeps_the_plain_layers():
    x = ops.tensor(np.random.default_rng(0).normal(3, 2, (4, 2, 5, 5)).astype(np.float32))
    plain, asked = (ops.to_numpy(norm_of(sync_bn=joins)(x)) for joins in (False, True))
    np.testing.assert_array_equal(asked, plain)
