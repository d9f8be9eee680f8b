"""Buffers stay a rank's own under a PyTorch before 2.13 too, whose argument has another name."""

import importlib

import pytest

import backend

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="only PyTorch sends buffers")


class OlderDataParallel:
    """`DistributedDataParallel` as PyTorch 2.11 has it: what it takes, and keeps, of buffers."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=True):
        self.broadcast_buffers = broadcast_buffers


def test_no_forward_pass_sends_buffers(monkeypatch):
    dist = importlib.import_module("backend.torch.dist")
    process = dist.this_process()
    monkeypatch.setattr(dist, "this_process", lambda: process._replace(world_size=2))
    monkeypatch.setattr(dist, "DistributedDataParallel", OlderDataParallel)
    assert dist.data_parallel(backend.nn.Conv2d(1, 1, 1)).broadcast_buffers is False
