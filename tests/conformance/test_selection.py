"""Which backend a process gets, how it starts, is interrupted, and finds its functions."""

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from duet import backend
from duet.backend import updates
from duet.backend.contract import training
from duet.utils.project import PROJECT
from tests.conformance import completeness
from tests.environments import python

TORCHRUN = {"TORCHELASTIC_RUN_ID": "1", "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "::1"}
ONEFLOW_LAUNCH = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "::1", "GLOG_log_dir": "log"}

ENDING = """
import faulthandler
from duet import backend
faulthandler.enable()
faulthandler.dump_traceback_later(2, exit=True)
backend.use("oneflow")
"""
CHOOSE = """
import sys
from duet.backend import select
try:
    print(select.choose(sys.argv[1] or None, trains=sys.argv[2:] == ["trains"]))
except select.BackendError as error:
    print("refused:", error)
assert not {"torch", "oneflow", "onnx"} & set(sys.modules)
"""


def install(folder: Path, package: str, version: str, code: str = "") -> None:
    """Make a folder that Python's import system takes for an installed package."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text(code)
    metadata = folder / f"{package}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {package}\nVersion: {version}\n")


def run(
    code: str, folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run code where only the packages in folder are installed."""
    kept = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    path = os.pathsep.join([str(PROJECT), str(folder)])
    return subprocess.run(
        # -S: without the site-packages of this Python.
        [sys.executable, "-S", "-B", "-c", code, *arguments],
        env={**kept, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def choose(folder: Path, name: str = "", *to_train: str, **environment: str) -> str:
    result = run(CHOOSE, folder, name, *to_train, **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


TORCH, ONEFLOW, NEWER = ("torch", "2.13.0+cpu"), ("oneflow", "0.9.0"), ("oneflow", "0.7.0")
BOTH, ONNX = (TORCH, ONEFLOW), (("onnx", "1.17.0"), ("onnxruntime", "1.23.2"))
OF_TORCH, OF_ONEFLOW = "make setup BACKEND=torch", "make setup BACKEND=oneflow"
NO_TRAINING = (
    "refused: backend 'onnx' is inference-only; choose one that supports training: torch, oneflow"
)
# What is installed, --backend, the environment: the backend, or parts of why there is none.
CHOICES: list[tuple[Any, str, dict[str, str], tuple[str, ...]]] = [
    (BOTH, "oneflow", {"YOLO_BACKEND": "torch"}, ("oneflow",)),
    (BOTH, "", {"YOLO_BACKEND": "oneflow"}, ("oneflow",)),
    (BOTH, "", {"YOLO_BACKEND": ""}, ("torch",)),
    (BOTH, "", ONEFLOW_LAUNCH, ("oneflow",)),
    (BOTH, "", TORCHRUN, ("torch",)),
    (BOTH, "oneflow", ONEFLOW_LAUNCH, ("oneflow",)),
    (BOTH, "", {}, ("torch",)),
    ([("oneflow", "0.9.0+cu117")], "", {}, ("oneflow",)),
    ((*BOTH, *ONNX), "onnx", {}, ("onnx",)),
    (ONNX, "", {}, ("onnx",)),
    (ONNX[:1], "", {}, ("refused:", "is not installed", "pip install onnx onnxruntime")),
    (ONNX[:1], "onnx", {}, ("refused:", "is not installed", "pip install onnx onnxruntime")),
    (BOTH, "jax", {}, ("refused:", "--backend; accepted: torch, oneflow")),
    (BOTH, "", {"YOLO_BACKEND": "jax"}, ("refused:", "'jax' in YOLO_BACKEND")),
    ((), "torch", {}, ("refused:", OF_TORCH)),
    ((), "oneflow", {}, ("refused:", OF_ONEFLOW)),
    ((), "", {}, ("refused:", OF_TORCH, OF_ONEFLOW)),
    # What pip finds for newer Pythons.
    ([NEWER], "oneflow", {}, ("refused:", "needs oneflow 0.9.0", "has 0.7.0", OF_ONEFLOW)),
    ([NEWER], "", {}, ("refused:", "needs oneflow 0.9.0", "has 0.7.0", OF_ONEFLOW)),
    (BOTH, "oneflow", TORCHRUN,
     ("refused:", "cannot run under `torchrun`", "python -m oneflow.distributed.launch")),
    (BOTH, "torch", ONEFLOW_LAUNCH, ("refused:", "torchrun")),
    (BOTH, "", {"YOLO_BACKEND": "torch", **ONEFLOW_LAUNCH}, ("refused:", "cannot run under")),
]  # fmt: skip


@pytest.mark.parametrize(("installed", "name", "environment", "answer"), CHOICES)
def test_backend_follows_name_environment_launcher_install(
    tmp_path: Path, installed: Any, name: str, environment: dict[str, str], answer: tuple[str, ...]
) -> None:
    for package in installed:
        install(tmp_path, *package)
    found = choose(tmp_path, name, **environment)
    if answer[0] == "refused:":
        assert [part for part in answer if part not in found] == []
    else:
        assert (found,) == answer


def test_inference_backend_is_never_chosen_for_training(tmp_path: Path) -> None:
    for package in ONNX:
        install(tmp_path, *package)
    answer = choose(tmp_path, "", "trains")
    assert OF_TORCH in answer and OF_ONEFLOW in answer and "onnx" not in answer
    for package in BOTH:
        install(tmp_path, *package)
    assert choose(tmp_path, "onnx", "trains") == NO_TRAINING
    assert choose(tmp_path, "", "trains", YOLO_BACKEND="onnx") == NO_TRAINING
    assert choose(tmp_path, "", "trains") == "torch"


def test_empty_torch_folder_does_not_count_as_installed(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    assert OF_TORCH in choose(tmp_path, "torch")


def test_backend_without_a_launcher_runs_alone(tmp_path: Path) -> None:
    install(tmp_path, *TORCH)
    register = (
        'from duet.backend import select; select.FRAMEWORKS["x"] = select.Framework("torch")\n'
    )
    result = run(register + CHOOSE, tmp_path, "x", **TORCHRUN)
    assert "cannot run under `torchrun`; start it without a launcher" in result.stdout


def test_failed_import_error_shows_the_captured_output(tmp_path: Path) -> None:
    install(tmp_path, "oneflow", "0.9.0")
    install(
        tmp_path,
        "torch",
        "2.13.0",
        "import os; os.write(2, b'no such kernel\\n'); raise ImportError('libx.so.8')",
    )
    result = run("from duet import backend; backend.use('torch')", tmp_path)
    assert result.returncode == 1
    for part in ("'torch' is installed but cannot be imported", "libx.so.8", "no such kernel"):
        assert part in result.stderr


WRITING = "import os; os.write(2, b'libibverbs not available, skipped\\na real warning\\n')"


def test_import_output_is_shown_except_known_noise(tmp_path: Path) -> None:
    install(tmp_path, "oneflow", "0.9.0", WRITING)
    code = (
        "import os, backend\ntry: backend.use('oneflow')\nexcept ValueError: os.write(2, b'after')"
    )
    assert run(code, tmp_path).stderr == "a real warning\nafter"


@pytest.mark.parametrize("end", ["os.abort()", "import signal; signal.pause()"])
def test_aborted_or_hung_import_shows_its_output_and_place(tmp_path: Path, end: str) -> None:
    install(tmp_path, "oneflow", "0.9.0", f"{WRITING}; {end}")
    result = run(ENDING, tmp_path)
    assert result.returncode != 0
    assert "a real warning" in result.stderr and "libibverbs" not in result.stderr
    assert 'oneflow/__init__.py", line 1 in <module>' in result.stderr


def test_second_backend_in_one_process_is_refused() -> None:
    used = backend.use()
    assert backend.use(used) == used
    (other,) = {"torch", "oneflow"} - {used}
    with pytest.raises(backend.BackendError, match=f"already uses '{used}'.*another process"):
        backend.use(other)
    assert backend.use() == used


def test_later_op_lookups_import_nothing() -> None:
    # A compiler cannot trace an import: it would split the model there.
    code = (
        "import importlib; from duet.backend import ops, use; use(); ops.zeros((1,)); "
        "importlib.import_module = None; ops.silu"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


IMPORTED_TOO_EARLY = """
import sys
from duet import backend
from duet import models
for _ in range(2):  # the failed import leaves nothing behind
    try:
        import duet.models.blocks.yolov5
    except backend.BackendError as error:
        print(error)
assert not {"torch", "oneflow"} & set(sys.modules)
assert backend.use(sys.argv[1]) == sys.argv[1]
import duet.models.blocks.yolov5
"""


def test_importing_framework_code_does_not_choose_a_backend() -> None:
    done = python("-c", IMPORTED_TOO_EARLY, backend.use(), YOLO_BACKEND="")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = set(done.stdout.splitlines())
    assert line.partition(" ")[2] == (
        "was used before a backend was selected: call backend.use(name) first, as train.py does"
    )


WRITING_NOTHING = "from duet.backend import ops, use; use(); print(ops.dtype_of(ops.zeros((1,))))"
HANDLED = """
import os, signal
signal.signal(signal.SIGINT, lambda number, frame: print("handled"))
from duet import backend
backend.use()
os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize(
    ("code", "printed"),
    [(WRITING_NOTHING, "float32\n"), (HANDLED, "handled\n")],
    ids=["writes nothing", "keeps the interrupt handler"],
)
def test_backend_starts_up_quietly(code: str, printed: str) -> None:
    done = python("-c", code, YOLO_BACKEND=backend.use())
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


INTERRUPTED = """
import time
from duet import backend
backend.use()
try:
    print("ready", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    print("interrupted")
finally:
    print("cleaned up")
"""


def test_control_c_raises_keyboard_interrupt() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        cwd=PROJECT, env={**os.environ, "YOLO_BACKEND": backend.use()}, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "interrupted\ncleaned up\n", "")


def test_missing_and_differing_members_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    name = backend.use()
    ops, nn = (importlib.import_module(f"duet.backend.{name}.{m}") for m in ("ops", "nn"))
    monkeypatch.delattr(ops, "where")
    monkeypatch.setattr(ops, "sum", lambda x, axis=None, keepdim=False: x)
    monkeypatch.setattr(nn, "pack", lambda model: None)
    monkeypatch.delattr(updates.Optimizer, "step")
    assert completeness.missing(name) == [
        "ops.where is missing",
        "ops.sum takes (x, axis=None, keepdim=False), not (x, dim=None, keepdim=False)",
        "nn.pack takes (model), not (module)",
        *(
            f"{module}.{kind}.step is missing"
            for module in ("optim", "multi_tensor")
            for kind in ("SGD", "Adam", "AdamW")
        ),
    ]


def test_every_promised_module_is_a_namespace() -> None:
    assert set(training.MODULES) < set(backend.__all__)
    assert completeness.missing(backend.use()) == []
