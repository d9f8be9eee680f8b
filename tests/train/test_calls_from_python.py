"""`duet.train` and its kin: a command's work, errors and figures, in a process that goes on."""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import duet
from duet.backend import cores, use
from duet.runs import words_of
from duet.utils.project import PROJECT
from tests.small import write_small_dataset, write_tiny_model

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


def in_a_thread(call: Callable[..., Any], *arguments: Any, **flags: Any) -> Any:
    """Call a function in a thread, where Python lets no one handle signals."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *arguments, **flags).result()


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.chdir(tmp_path)
    data = write_small_dataset(tmp_path)
    return {"data": data, "img": 64, "batch": 4, "workers": 0, "backend": use()}


def test_one_process_trains_twice_validates_and_exports(flags, tmp_path, capsys) -> None:
    model = write_tiny_model(tmp_path)
    before = [signal.getsignal(number) for number in SIGNALS], sys.argv, logging.root.handlers[:]
    first = duet.train(**flags, cfg=model, weights="", epochs=2, noplots=True)
    assert first.weights == Path("runs/train/exp/weights/best.safetensors")
    assert first.weights.exists() and first.epoch in (1, 2)
    more = {"weights": first.weights, "epochs": 1, "noplots": True, "bbox_iou_optim": True}
    second = in_a_thread(duet.train, **flags, **more)
    assert second.folder == Path("runs/train/exp2")
    found = in_a_thread(duet.val, second.weights, flags["data"], img=64, workers=0)
    assert found.metrics.keys() == second.metrics.keys() > {"mAP_0.5"}
    assert found.metrics == pytest.approx(second.metrics, abs=1e-3)  # classes in other batches
    assert found.result.class_names and found.folder == Path("runs/val/exp")
    written = in_a_thread(duet.export, second.weights, "onnx", img=64)
    assert written.files == (second.weights.with_suffix(".onnx"),) and not written.failed
    assert not duet.check(flags["data"], img=64).has_problems
    assert before == ([*map(signal.getsignal, SIGNALS)], sys.argv, logging.root.handlers)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "--epochs 0; accepted: a whole number of at least 1"),
        ({"data": "none.yaml"}, "--data none.yaml: no dataset YAML at"),
        ({"backend": "jax"}, "--backend jax; accepted: torch, oneflow"),
        ({"device": "0,1"}, "device='0,1' would start more processes; use the command"),
        ({"evolve": 3}, "evolve=3 would start more processes"),
    ],
)
def test_wrong_keyword_gives_the_message_of_the_command(flags, wrong, message) -> None:
    before = [signal.getsignal(number) for number in SIGNALS], sys.argv
    with pytest.raises(duet.UserError) as caught:
        duet.train(**{**flags, **wrong})
    assert str(caught.value).startswith(message)
    assert before == ([*map(signal.getsignal, SIGNALS)], sys.argv)
    assert not Path("runs").exists()


@pytest.mark.parametrize("keyword", ["epcohs", "epoch"])  # neither a slip nor an abbreviation
def test_unknown_keyword_is_a_type_error(flags, keyword) -> None:
    message = rf"duet.train\(\): unknown flag --{keyword} for duet train; did you mean --epochs\?"
    with pytest.raises(TypeError, match=message):
        duet.train(**flags, **{keyword: 3})
    assert not Path("runs").exists()


# A program that trains in threads, two where the framework can, beside its own work.
GUEST = """
import gc, logging, multiprocessing, os, pickle, sys, threading, warnings
from pathlib import Path
import numpy as np
import duet
from duet import backend as duet_backend
class Own: pass
words = sys.argv[1:]
data, model, backend = words
flags = dict(data=data, cfg=model, weights="", img=64, batch=4, workers=1, epochs=2, noplots=True,
             device="cpu", backend=backend)
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
def kept():
    gc.collect()
    before = resident()
    np.ones(200 << 20, np.uint8)
    return (resident() - before) >> 20
def state():
    return (sys.argv, sys.modules["__main__"], warnings.showwarning, logging.root.handlers[:],
            logging.root.level, sys.stdout.errors, sys.stderr.errors, device.host_threads())
duet_backend.use(backend)
device = duet_backend.device
device.set_host_threads(2)
before = state()
def train():
    device.set_host_threads(2)
    duet.train(**flags)
    assert device.host_threads() == before[-1]
calls = {"torch": 2, "oneflow": 1}[backend]  # two trainings of OneFlow wait for each other
threads = [threading.Thread(target=train) for _ in range(calls)]
for thread in threads:
    thread.start()
assert sys.modules["__main__"].Own is Own
while any(thread.is_alive() for thread in threads):
    pickle.dumps(Own())
    assert sys.argv[1:] == words
    threads[0].join(0.01)
assert state() == before, (state(), before)
assert kept() < 100, "freed memory is kept"
multiprocessing.set_start_method("spawn")
"""


def test_training_in_threads_leaves_its_host_unchanged(tmp_path) -> None:
    program, environment = tmp_path / "program.py", {**os.environ, "PYTHONPATH": str(PROJECT)}
    for name in cores.THREADS:
        environment.pop(name, None)
    program.write_text(GUEST)
    words = [write_small_dataset(tmp_path), write_tiny_model(tmp_path), use()]
    done = subprocess.run(
        [sys.executable, program, *map(str, words)], cwd=tmp_path, env=environment,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {path.name for path in Path(tmp_path, "runs/train").iterdir()} >= {"exp"}


# A program that has changed its framework's defaults, and finds what one without changes finds.
MODES = {
    "torch": [
        "framework.set_default_device('meta')",
        "framework.set_default_dtype(framework.bfloat16)",
        "framework.set_grad_enabled(False)",
        "kept = framework.autocast('cpu', framework.bfloat16); kept.__enter__()",
    ],
    "oneflow": [
        "framework.set_default_dtype(framework.float64)",
        "kept = framework.no_grad(); kept.__enter__()",
    ],
}
OTHER_DEFAULTS = """
import importlib, random, sys
import numpy as np
data, model, backend, *modes = sys.argv[1:]
framework = importlib.import_module(backend)
def draws():
    return random.random(), np.random.random(), framework.rand(3, dtype=framework.float32).tolist()
def seed():
    random.seed(1), np.random.seed(1), framework.manual_seed(1)
seed()
expected = draws()
seed()
import duet
for mode in modes:
    exec(mode)
flags = dict(img=64, batch=4, workers=0, device="cpu")
trained = duet.train(data, cfg=model, weights="", epochs=1, backend=backend, noplots=True, **flags)
found = duet.val(trained.weights, data, **flags)
image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
(one,) = duet.load(trained.weights, device="cpu")(image, size=64, conf=1e-9, max_det=50)
(written,) = duet.export(trained.weights, "onnx", img=64).files
(same,) = duet.load(written, device="cpu")(image, size=64, conf=1e-9, max_det=50)
assert len(one) == len(same) == 50
for mode in modes:
    exec(mode.replace("meta", "cpu"))  # what was drawn is read
assert modes or draws() == expected
print([found.metrics, one.scores.tolist(), one.boxes_xyxy.tolist()], file=sys.stderr)
"""


@pytest.fixture(scope="module")
def small_and_tiny(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("given")
    return [str(write_small_dataset(folder)), str(write_tiny_model(folder)), use()]


def found_with(modes: list[str], words: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", OTHER_DEFAULTS, *words, *modes], cwd=folder, check=False,
        env={**os.environ, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()[-1]


def test_calls_keep_the_programs_defaults_and_random_state(small_and_tiny, tmp_path) -> None:
    """Neither do they change what Duet computes, nor does Duet draw from them."""
    expected = found_with([], small_and_tiny, tmp_path)
    for mode in MODES[use()]:
        assert found_with([mode], small_and_tiny, tmp_path) == expected, mode


WITHOUT_STREAMS = """
import sys
sys.stdout = sys.stderr = None
import duet
data, model, backend, file = sys.argv[1:]
flags = dict(img=64, batch=4, workers=1, device="cpu")
kept = duet.train(data, cfg=model, weights="", epochs=1, noplots=True, backend=backend, **flags)
duet.val(kept.weights, data, **flags)
duet.export(kept.weights, "onnx", img=64)
duet.check(data)
assert sys.stdout is None and sys.stderr is None
print("done", file=open(file, "w"))
"""


def test_calls_work_without_standard_streams(small_and_tiny, tmp_path) -> None:
    """As one of Windows without a console, and one that a service manager starts with `>&-`."""
    file = tmp_path / "done"
    words = [sys.executable, "-c", WITHOUT_STREAMS, *small_and_tiny, str(file)]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    subprocess.run(words, cwd=tmp_path, env=environment, timeout=300, check=True)
    assert file.read_text() == "done\n"


def test_keywords_become_command_line_words() -> None:
    flags = {"batch_size": 8, "multi_tensor_optimizer": True, "bbox_iou_optim": False,
             "rect": False, "weights": "", "freeze": (0, 1), "cache": None,
             "override": ["lr0=-1"]}  # fmt: skip
    assert words_of(flags) == [
        "--batch-size=8", "--multi_tensor_optimizer", "--no-bbox_iou_optim", "--weights=",
        "--freeze", "0", "1", "--override", "lr0=-1",
    ]  # fmt: skip
