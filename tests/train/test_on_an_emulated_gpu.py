"""train.py, val.py and detect.py on an emulated GPU that works as late as it may."""

import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from duet import backend
from duet.utils.processes.exit_status import EXIT_DONE, EXIT_SUSPENDED
from duet.utils.processes.launch import run_ranks
from duet.utils.project import PROJECT
from duet.utils.weights.checkpoint import load_checkpoint
from tests.small import (
    CLASS_NAMES,
    TINY_SEGMENTER,
    write_outlined_dataset,
    write_small_dataset,
    write_tiny_anchor_free,
    write_tiny_model,
    write_tiny_weights,
)
from tests.train.short_runs import assert_equal_runs

pytestmark = pytest.mark.skipif(backend.use() != "torch", reason="it is PyTorch's")

PLAIN = ("--no-bbox_iou_optim", "--no-multi_tensor_optimizer")
# Of float32, relative to the largest number of a tensor, after six steps: the maps of a CPU lie
# channels-last, and its normalization is joined with SiLU.
ROUNDING = 1e-4

# Joins maps that half precision could leave in two dtypes.
NECK = """head:
  - [-1, 1, nn.Upsample, [None, 2, nearest]]
  - [[-1, 2], 1, Concat, [1]]
  - [[5, 3], 1, Segment, [nc, anchors, 6, 64]]
"""

AS_PROGRAM = ("-m", "tests.emulated.program")
SECONDS = 300  # a limit against hanging
END = "=== the script has ended"


class OneGpu:
    """A process with an emulated GPU that runs script after script: PyTorch is imported once."""

    def __init__(self, kind: str) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, *AS_PROGRAM], cwd=PROJECT, env=environment_with(EMULATED_KIND=kind),
            text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
        )  # fmt: skip

    def run(self, words: list[str], environment: dict[str, str]) -> str:
        print(json.dumps([words, environment, END]), file=self.process.stdin, flush=True)
        limit = threading.Timer(SECONDS, self.process.kill)
        limit.start()
        lines = []
        try:
            while not lines or lines[-1] not in (f"{END}\n", ""):
                lines.append(self.process.stdout.readline())
        finally:
            limit.cancel()
        if not lines.pop():
            self.errors.seek(0)
            text = self.errors.read()
            self.end()
            raise AssertionError(text)
        return "".join(lines)

    def end(self) -> None:
        self.process.communicate(timeout=SECONDS)
        self.errors.close()


running: dict[str, OneGpu] = {}  # by the kind of the GPU


@pytest.fixture(scope="module", autouse=True)
def _programs_end() -> Iterator[None]:
    yield
    for gpu in running.values():
        if gpu.process.poll() is None:
            gpu.end()


def environment_with(**values: str) -> dict[str, str]:
    return {**os.environ, "YOLO_BACKEND": "torch", "PYTHONPATH": str(PROJECT), **values}


def run(script: str, *flags: object, gpu: str = "0", **environment: str) -> str:
    """Run a script on an emulated GPU; return what it prints."""
    kind = "mps" if gpu == "mps" else "cuda"
    if kind not in running or running[kind].process.poll() is not None:
        running[kind] = OneGpu(kind)
    words = [script, *map(str, flags), *(("--device", gpu) if gpu else ())]
    return running[kind].run(words, environment)


def start_emulated(command: Sequence[str], *others: Any) -> int:
    """Start ranks on emulated GPUs in place of those of the script."""
    python, unbuffered, *script = command
    return run_ranks([python, unbuffered, *AS_PROGRAM, *script], *others)


def run_two(capfd, script: str, *flags: object, code: int = EXIT_DONE, **environment: str) -> str:
    """Run a script on two emulated GPUs, launched from this process; return what they print."""
    own = importlib.import_module("val" if script == "val.py" else "train")
    with (
        mock.patch("sys.argv", [script, *map(str, flags), "--device", "0,1"]),
        mock.patch.dict(os.environ, environment_with(**environment)),
        mock.patch("duet.backend.devices.sees_driver", lambda: True),
        mock.patch("duet.utils.processes.launch.run_ranks", start_emulated),
        pytest.raises(SystemExit) as ended,
    ):
        own.main()
    printed = capfd.readouterr()
    assert ended.value.code == code, printed.err
    return printed.out


def run_on_cpu(script: str, *flags: object) -> None:
    """Run a script in this process."""
    with mock.patch("sys.argv", [script, *map(str, flags), "--device", "cpu"]):
        importlib.import_module(script.removesuffix(".py")).main()


class Trainings:
    """Short trainings in one folder."""

    def __init__(self, folder: Path, data: Path, cfg: Path, *flags: object) -> None:
        self.folder = folder
        self.flags = ["--data", data, "--cfg", cfg, "--img", 64, "--epochs", 1, "--batch", 2]
        self.flags += ["--project", folder, "--noplots", "--workers", 0, *flags]

    def train(self, name: str, *flags: object, start=run, **options) -> tuple[Path, str]:
        text = start("train.py", *self.flags, "--name", name, *flags, **options)
        return self.folder / name, text

    def train_on_cpu(self, name: str, *flags: object) -> Path:
        run_on_cpu("train.py", *self.flags, "--name", name, *flags)
        return self.folder / name


def assert_equal_states(on_gpu: Path, on_cpu: Path) -> None:
    found, expected = (
        load_checkpoint(folder / "weights" / "last.safetensors") for folder in (on_gpu, on_cpu)
    )
    for section in ("model", "ema", "optimizer"):
        for name, array in getattr(expected, section).items():
            scale = max(np.abs(array).max(initial=0), 1e-3)
            difference = np.abs(getattr(found, section)[name] - array).max(initial=0) / scale
            assert difference < ROUNDING, (section, name)


MODELS = {
    "anchors": (write_tiny_model, ()),
    "anchor-free": (write_tiny_anchor_free, ("--optimizer", "AdamW")),
}


@pytest.fixture(scope="module", params=MODELS)
def trainings(request, tmp_path_factory) -> tuple[Trainings, Path]:
    """Return trainings of a model, and the folder of one on a CPU."""
    folder, (write_model, flags) = tmp_path_factory.mktemp("trainings"), MODELS[request.param]
    detectors = Trainings(folder, write_small_dataset(folder), write_model(folder), *flags)
    return detectors, detectors.train_on_cpu("cpu", "--amp", "off")


def test_apple_gpu_matches_a_cpu_without_float64(trainings):
    detectors, on_cpu = trainings
    on_gpu, text = detectors.train("apple", gpu="mps")
    assert "Apple GPU; float32" in text
    assert_equal_states(on_gpu, on_cpu)
    flags = ("--weights", on_gpu / "weights" / "last.safetensors", "--project", detectors.folder)
    images = detectors.folder / "shapes" / "images" / "val"
    data = ("--data", detectors.flags[1], "--workers", 0)
    assert "results in " in run("val.py", *flags, *data, gpu="mps")
    assert "results in " in run("detect.py", *flags, "--source", images, gpu="mps")


def test_gpu_training_matches_a_cpu_and_hardly_waits(trainings, request):
    detectors, on_cpu = trainings
    is_plain = "anchor-free" in request.node.callspec.id
    flags = ("--amp", "off", "--workers", 1, *(PLAIN if is_plain else ()))
    on_gpu, text = detectors.train("gpu", *flags)
    assert_equal_states(on_gpu, on_cpu)
    waits = json.loads(text.splitlines()[-1])
    # Updates follow batches 1, 2 and 4; each asks whether the one before it has happened.
    assert waits["steps"] == [0, 1, 0, 1, 0, 0]
    assert waits["validations"] == [2 * 2]  # batches: which rows, and them
    # NMS of a batch runs while the GPU has the next one to compute; there is none after the last.
    next_one, nothing = waits["beside_nms"]
    assert next_one > 50 > nothing
    done = json.loads((on_gpu / "work.json").read_text(encoding="utf-8"))["means"]
    means = {done["box_iou"], done["optimizer"], done["average"]}
    assert means == {"plain" if is_plain else "fast"}


def test_yolov5n_step_has_at_most_600_operations(tmp_path):
    detectors = Trainings(tmp_path, write_small_dataset(tmp_path), "models/yolov5n.yaml")
    flags = ("--noval", "--batch", 4, "--override", "nbs=4")
    _, text = detectors.train("gpu", *flags)
    counts = json.loads(text.splitlines()[-1])
    steps, passes = (np.array(counts[name][1:]) for name in ("operations", "passes"))
    assert steps.max() <= 600
    # With --compile a pass is a graph: the images, clipping, the update and the EMA are the rest.
    assert (steps - passes).max() <= 40


def test_mask_operations_do_not_grow_with_images(tmp_path):
    segmenters = Trainings(tmp_path, write_outlined_dataset(tmp_path), "models/yolov5n-seg.yaml")
    flags = ("--noval", "--override", "nbs=2", "--epochs", 2, "--batch", 12)
    _, text = segmenters.train("gpu", *flags)
    first, *others = json.loads(text.splitlines()[-1])["operations"]
    assert max(others) <= 690 + 4 * 35  # four sizes of patches


@pytest.mark.parametrize(
    ("flags", "colours"),
    [(["--no-device-augment"], "loader"), (["--noval"], "device")],
    ids=["images from the loader", "images finished on the device"],
)
def test_results_do_not_depend_on_device_timing(tmp_path, flags, colours):
    data, cfg = write_outlined_dataset(tmp_path), tmp_path / "with-a-neck.yaml"
    cfg.write_text(TINY_SEGMENTER.partition("head:")[0] + NECK, encoding="utf-8")
    fast = ("--amp", "bf16", "--micro-batch", 1, "--workers", 1)
    segmenters = Trainings(tmp_path, data, cfg, *fast, *flags)
    late, _ = segmenters.train("late", FINISHES="1")
    at_once, _ = segmenters.train("once", FINISHES="1", AT_ONCE="1")
    assert_equal_runs(late, at_once)
    work = json.loads((late / "work.json").read_text(encoding="utf-8"))
    assert work["means"]["colours"] == colours


@pytest.mark.parametrize("words", [(), ("refused",)], ids=["page-locked", "not page-locked"])
def test_lent_batches_are_copied_before_memory_changes(tmp_path, words):
    waits = int(run("lent_batches", write_small_dataset(tmp_path), *words, gpu=""))
    # Six batches, four in memory at a time: the other two wait, since nothing else does.
    assert 0 < waits <= 3


def test_two_ranks_agree_at_any_device_timing(tmp_path, capfd, caplog):
    caplog.set_level("INFO")
    data = write_small_dataset(tmp_path)
    next(data.parent.glob("images/train/*")).unlink()  # 11 are left: the last batch has one image
    detectors = Trainings(tmp_path, data, write_tiny_model(tmp_path))
    flags = ("--amp", "bf16", "--sync-bn", "--workers", 1)
    start = partial(run_two, capfd)
    late, text = detectors.train("late", *flags, start=start)
    at_once, _ = detectors.train("once", *flags, start=start, AT_ONCE="1", OLDEST="1")
    assert "starting 2 processes, one per device" in caplog.text
    assert_equal_runs(late, at_once)
    waits = [json.loads(line) for line in text.splitlines() if line.startswith('{"steps"')]
    assert len(waits) == 2
    # Has the update before happened? In the second step PyTorch lays out its buckets anew.
    assert all(max(rank["steps"][2:]) <= 1 for rank in waits), waits


def test_request_to_one_rank_ends_all_after_the_update(tmp_path, capfd):
    data, cfg = write_small_dataset(tmp_path), write_tiny_model(tmp_path)
    flags = ("--data", data, "--cfg", cfg, "--img", 64, "--batch", 2, "--override", "nbs=2")
    flags += ("--project", tmp_path, "--noplots", "--workers", 0)
    fault = json.dumps({"how": "ask_rank", "rank": 1, "phase": "training", "step": 3})
    script = "tests/distributed/faulty_training.py"
    text = run_two(capfd, script, *flags, code=EXIT_SUSPENDED, FAULT=fault)
    assert text.count("suspended after 5 batches") == 1, text


def test_gpu_detections_match_a_cpu(tmp_path, capfd):
    data = ("--data", write_small_dataset(tmp_path, CLASS_NAMES), "--workers", 0)
    images = tmp_path / "shapes" / "images" / "val"
    flags = ["--weights", write_tiny_weights(tmp_path), "--img", 64, "--project", tmp_path]
    flags += ["--save-txt", "--save-conf"]
    run_two(capfd, "val.py", *flags, *data, "--name", "val-gpu")
    run("detect.py", *flags, "--source", images, "--name", "detect-gpu")
    run_on_cpu("val.py", *flags, *data, "--name", "val-cpu")
    run_on_cpu("detect.py", *flags, "--source", images, "--name", "detect-cpu")
    for on_gpu in ("val-gpu", "detect-gpu"):
        on_cpu = on_gpu.partition("-")[0] + "-cpu"
        expected = sorted((tmp_path / on_cpu / "labels").glob("*.txt"))
        assert expected
        for path in expected:
            found = tmp_path / on_gpu / "labels" / path.name
            np.testing.assert_allclose(np.loadtxt(found), np.loadtxt(path), atol=1e-5)


SMALL = ("--img", 64, "--batch", 2)
BENCHMARKS = {
    "ciou": ("--boxes", 100),
    "detect": (*SMALL, "--images", 2, "--cfg", "MODEL"),
    "heads": SMALL,
    "step_table": (*SMALL, "--models", "MODEL", "--precision", "bfloat16", "--execution", "eager"),
    "train_step": (*SMALL, "--warm-up", 0, "--only", "padded loss", "--cfg", "MODEL"),
    "updates": ("--cfg", "MODEL"),
    "val": (*SMALL, "--images", 2, "--workers", 0, "--cfg", "MODEL"),
}


@pytest.mark.parametrize("name", BENCHMARKS)
def test_each_benchmark_runs_on_a_gpu(tmp_path, name):
    model, path = write_tiny_model(tmp_path), tmp_path / "rows.json"
    flags = (model if flag == "MODEL" else flag for flag in BENCHMARKS[name])
    run(f"benchmarks/{name}.py", *flags, "--repeats", 1, "--json", path)
    document = json.loads(path.read_text())
    assert document["device"] == "cuda:0" and document["timings"]
