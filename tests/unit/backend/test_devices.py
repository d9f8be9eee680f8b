"""A rank on the second GPU of a machine, and what switches off TF32 there."""

import importlib

import pytest

from duet import backend
from duet.backend import devices
from duet.backend.devices import check_device
from duet.backend.select import BackendError
from duet.models.training import execution

GPUS = ["cuda:0", "cuda:1", "cpu"]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> str:
    """Be rank 1 of 2 beside two GPUs; return the device of this rank."""
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    module = importlib.import_module(f"duet.backend.{backend.use()}.device")
    monkeypatch.setattr(module, "_usable", lambda: GPUS)
    return backend.device.resolve("")


def test_precision_support_is_read_from_own_device(
    own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    framework, asked = importlib.import_module(backend.use()), list[str]()

    def capability(device: object) -> tuple[int, int]:
        asked.append(str(device))
        return 8, 0

    monkeypatch.setattr(framework.cuda, "get_device_capability", capability)
    assert set(backend.amp.supported(own)) <= {"bfloat16", "float16"}
    assert backend.amp.preferred(own) in ("float32", "bfloat16")
    assert set(asked) <= {own}


@pytest.mark.parametrize("device", ["cuda:2", "0", ""])
def test_unknown_device_name_is_refused(own: str, device: str) -> None:
    with pytest.raises(backend.BackendError, match=f"'{device}'.*cuda:0, cuda:1, cpu"):
        backend.amp.supported(device)


def test_gpu_without_visible_driver_is_refused(monkeypatch):
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


def test_mps_is_one_explicit_pytorch_device():
    check_device("mps")
    check_device("mps", "torch")
    for device, framework in (("mps", "oneflow"), ("mps,mps", "torch"), ("mps,0", "")):
        with pytest.raises(BackendError, match="mps needs --backend torch, and is one device"):
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
def test_gloo_replaces_missing_nccl(
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


GPU = "cuda:0"


@pytest.fixture
def device(monkeypatch):
    """Return the backend's `device`, beside a GPU that has TF32; no setting outlives the test."""
    found = importlib.import_module(f"duet.backend.{backend.use()}.device")
    framework = importlib.import_module(backend.use())
    monkeypatch.setattr(framework.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    torch = backend.use() == "torch"
    parts = [framework.backends.cudnn, framework.backends.cuda.matmul] if torch else []
    before = [part.allow_tf32 for part in parts]
    for part in parts:
        part.allow_tf32 = True
    yield found
    for part, value in zip(parts, before, strict=True):
        part.allow_tf32 = value


def test_compute_exactly_disables_tf32_only_on_pytorch(device):
    for where, rounds in (("cpu", True), (GPU, backend.use() == "oneflow")):
        device.compute_exactly(where)
        assert device.rounds_to_tf32(GPU) is rounds
        if backend.use() == "torch":  # products of matrices too
            assert device.torch.backends.cuda.matmul.allow_tf32 is rounds


@pytest.mark.skipif(backend.use() != "torch", reason="OneFlow's switch cannot be set back")
def test_cudnn_benchmark_is_on_only_for_repeated_gpu_shapes(device):
    cudnn = device.torch.backends.cudnn
    with device.shapes_repeat("cpu", True):
        assert not cudnn.benchmark
    with pytest.raises(ZeroDivisionError), device.shapes_repeat(GPU, True):
        assert cudnn.benchmark
        with device.shapes_repeat(GPU, False):
            assert not cudnn.benchmark
        assert cudnn.benchmark
        raise ZeroDivisionError
    assert not cudnn.benchmark  # the host program's setting


@pytest.mark.parametrize(("value", "rounds"), [("0", False), ("1", True), ("", True)])
def test_nvidia_tf32_override_rules_both_backends(device, monkeypatch, value, rounds):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", value)
    assert device.rounds_to_tf32(GPU) is rounds
    assert device.rounds_to_tf32("cpu") is False


def test_oneflow_tf32_variable_does_not_reach_convolutions(device, monkeypatch):
    monkeypatch.setenv("ONEFLOW_EP_CUDA_ENABLE_TF32_EXECUTION", "0")
    assert device.rounds_to_tf32(GPU)


def test_gpu_without_tf32_rounds_nothing(device, monkeypatch):
    framework = importlib.import_module(backend.use())
    monkeypatch.setattr(framework.cuda, "get_device_capability", lambda device: (7, 5))
    assert not device.rounds_to_tf32(GPU)


def test_precision_line_says_how_the_gpu_rounds(device):
    chosen = execution.describe_precision("bfloat16", GPU, True)
    assert chosen == "bfloat16 (--amp auto; use --amp off for float32)"
    assert execution.describe_precision("float16", GPU, False) == "float16"
    assert execution.describe_precision("float32", "cpu", False) == "float32"
    rounded = execution.describe_precision("float32", GPU, False)
    assert "convolutions use TF32" in rounded and "NVIDIA_TF32_OVERRIDE=0" in rounded
    device.compute_exactly(GPU)
    exact = execution.describe_precision("float32", GPU, False)
    assert exact == ("float32 (exact)" if backend.use() == "torch" else rounded)
