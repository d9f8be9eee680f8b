"""A rank on the second GPU of a machine: its device is the one that it was given, everywhere."""

from __future__ import annotations

import importlib

import pytest

from duet import backend
from duet.backend import devices
from duet.backend.devices import check_device
from duet.backend.select import BackendError

GPUS = ["cuda:0", "cuda:1", "cpu"]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> str:
    """Be rank 1 of 2 beside two GPUs; return the device of this rank."""
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    module = importlib.import_module(f"duet.backend.{backend.use()}.device")
    monkeypatch.setattr(module, "_usable", lambda: GPUS)
    return backend.device.resolve("")


def test_half_precision_is_asked_of_it(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    framework, asked = importlib.import_module(backend.use()), list[str]()

    def capability(device: object) -> tuple[int, int]:
        asked.append(str(device))
        return 8, 0

    monkeypatch.setattr(framework.cuda, "get_device_capability", capability)
    assert set(backend.amp.supported(own)) <= {"bfloat16", "float16"}
    assert backend.amp.preferred(own) in ("float32", "bfloat16")
    assert set(asked) <= {own}


@pytest.mark.parametrize("device", ["cuda:2", "0", ""])
def test_a_name_that_no_device_has_is_refused(own: str, device: str) -> None:
    with pytest.raises(backend.BackendError, match=f"'{device}'.*cuda:0, cuda:1, cpu"):
        backend.amp.supported(device)


def test_a_gpu_is_refused_where_no_driver_is_to_be_seen(monkeypatch):
    monkeypatch.setattr(devices, "sees_driver", lambda: False)
    for device in ("0", "cuda", "cuda:1", "0,1"):
        with pytest.raises(
            BackendError, match=f"--device '{device}' is not available: no GPU driver"
        ):
            check_device(device)
    for other in ("", "cpu"):
        check_device(other)
    monkeypatch.setattr(devices, "sees_driver", lambda: True)
    check_device("0,1")
    for wrong in ("gpu", "0,,1", "Mps", "-1", "cuda:x", " "):
        with pytest.raises(BackendError, match="accepted: cpu, cuda, a GPU such as 0, or 0,1"):
            check_device(wrong)


def test_mps_is_one_device_of_pytorch_that_must_be_named():
    check_device("mps")
    check_device("mps", "torch")
    for device, framework in (("mps", "oneflow"), ("mps,mps", "torch"), ("mps,0", "")):
        with pytest.raises(BackendError, match="mps is one device of --backend torch"):
            check_device(device, framework)
    usable = ["mps", "cpu"]
    assert [devices.own_device(name, usable) for name in ("", "cpu", "mps")] == [
        "cpu",
        "cpu",
        "mps",
    ]
    with pytest.raises(BackendError, match="'mps' is not available; available: cpu"):
        devices.own_device("mps", ["cpu"])


@pytest.mark.skipif(backend.use() != "torch", reason="OneFlow brings NCCL")
@pytest.mark.parametrize(("has_nccl", "engines"), [(True, "cpu:gloo,cuda:nccl"), (False, "gloo")])
def test_where_nccl_is_absent_gloo_joins_the_gpus(
    own: str, monkeypatch: pytest.MonkeyPatch, has_nccl: bool, engines: str
) -> None:
    begun, torch = [], importlib.import_module(backend.use())
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: has_nccl)
    monkeypatch.setattr(
        torch.distributed, "init_process_group", lambda *names, **more: begun.append((names, more))
    )
    backend.dist.start(own, 60)
    ((names, more),) = begun
    assert names == (engines,)
    assert more["device_id"] == (torch.device(own) if has_nccl else None)
