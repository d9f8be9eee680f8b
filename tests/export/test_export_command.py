"""The whole of export.py: what it writes, says and leaves, and how it ends."""

import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest

import export
from duet.backend import device, use
from duet.backend.select import FRAMEWORKS
from duet.models.export import job
from duet.utils.errors import UserError
from duet.utils.export import formats, opening
from duet.utils.export.config import parse_export_flags
from duet.utils.export.formats import check_export, format_named
from duet.utils.export.onnx import write_onnx
from duet.utils.optional import install_command
from duet.utils.project import PROJECT
from tests.export.every_kind import change_constant, write_graphs
from tests.small import (
    CLASS_NAMES,
    tiny_anchor_free,
    tiny_segmenter,
    with_names,
    write_checkpoint,
    write_class_folders,
    write_outlined_dataset,
    write_small_dataset,
    write_tiny_classifier,
    write_tiny_weights,
)

SIZE = ("--imgsz", "64")


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Weights of three tasks, and their graphs with and without NMS by the weights' names."""
    folder = tmp_path_factory.mktemp("stored")
    write_tiny_weights(folder, trained_size=64).rename(folder / "my model.safetensors")
    write_checkpoint(folder / "seg.safetensors", tiny_segmenter(folder))
    write_checkpoint(folder / "free.safetensors", tiny_anchor_free(folder))
    write_tiny_classifier(folder, trained_at=64).rename(folder / "cls.safetensors")
    words = {
        name: ["--weights", f"{folder}/{name.partition('+')[0]}.safetensors", *SIZE, *flags]
        for name, flags in (
            ("my model", []), ("my model+nms", ["--nms"]), ("seg", []), ("seg+nms", ["--nms"]),
            ("free", []), ("free+nms", ["--nms"]), ("cls", []),
        )
    }  # fmt: skip
    return folder, write_graphs(folder, words)


@pytest.fixture
def run(stored, tmp_path, monkeypatch, capsys):
    """Run the command in this process; return its exit code and what it printed.

    The commands to try next are left out.
    """
    (folder, graphs), given = stored, [""]

    def copy_graph(config, path):
        shutil.copy(graphs[f"{given[0]}+nms" if config.nms else given[0]], path)

    monkeypatch.setattr(job, "write_graph", copy_graph)

    def run(*flags, name="my model", size=SIZE):
        given[0] = name
        weights = shutil.copy(folder / f"{name}.safetensors", tmp_path)
        words = ["export.py", "--weights", str(weights), *size, *map(str, flags)]
        monkeypatch.setattr(sys, "argv", words)
        code = 0
        try:
            export.main()
        except SystemExit as end:
            code = end.code
        output, errors = capsys.readouterr()
        return code, output.partition("next:\n")[0], errors

    return run


def add_format(monkeypatch, name, convert, **changes):
    """Have a format beside the others; its files are ONNX files."""
    row = dataclasses.replace(
        format_named("onnx"), name=name, title=name.upper(), ending=f".{name}.onnx",
        convert=convert, **changes,
    )  # fmt: skip
    use_formats(monkeypatch, row, *formats.FORMATS)


def use_formats(monkeypatch, *rows):
    """Have these formats and no others."""
    for module in (formats, opening):
        monkeypatch.setattr(module, "FORMATS", rows)


def changing(name, change, convert=write_onnx):
    """Return a converter that writes an ONNX file with another constant of this name."""

    def write(graph, path, metadata, calibration):
        convert(graph, path, metadata, calibration)
        change_constant(path, name, change)

    return write


def test_export_writes_verified_files_beside_the_weights(stored, tmp_path):
    """From another folder, of a relative name, with a format that is named twice."""
    formats = ["onnx", "onnx", "openvino"]
    formats += ["torchscript"] if device.supports("torchscript") else []
    folder = tmp_path / "weights of a run"
    folder.mkdir()
    shutil.copy(stored[0] / "my model.safetensors", folder / "best.safetensors")
    words = ["--weights", "best.safetensors", *SIZE, "--include", *formats]
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        [sys.executable, str(PROJECT / "export.py"), *words],
        cwd=folder, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    shown, _, following = done.stdout.partition("next:\n")
    assert [shlex.split(line)[1:] for line in following.splitlines()] == [
        [str(PROJECT / "detect.py"), "--weights", "best.onnx", "--source", "images/"],
        [f"PYTHONPATH={PROJECT}", sys.executable, "-m", "duet", "serve", "--weights", "best.onnx"],
    ]
    first, line, *others = shown.splitlines()
    assert (
        first
        == "files are compared with the model on 8 images: photographs and the built-in dataset"
    )
    assert line.startswith("ONNX: best.onnx, 0.03") and " detections matched; largest" in line
    assert [one.split()[0] for one in others] == ["OpenVINO:", "TorchScript:"][: len(formats) - 2]
    assert all(" matched; largest" in one for one in others)
    written = ["best.onnx", "best.safetensors", "best.torchscript", "best_openvino_model"]
    assert sorted(os.listdir(folder)) == written[:2] + written[-len(others) :]
    session = onnxruntime.InferenceSession(folder / "best.onnx")
    assert session.get_inputs()[0].shape == [1, 3, 64, 64]


def test_wrong_file_is_not_written_but_the_others_are(run, tmp_path, monkeypatch):
    add_format(
        monkeypatch,
        "wrong",
        changing("model.1.conv.weight", lambda values: np.multiply(values, 2, values)),
    )
    (tmp_path / "my model.wrong.onnx").write_bytes(b"older")
    code, printed, errors = run("--include", "wrong", "onnx")
    assert code == 1
    assert "ONNX: " in printed and "WRONG: " not in printed
    first, last = errors.splitlines()
    text = "error: WRONG: it differs from the model: in 1 image of 64 x 64 px, scores differ by"
    assert first.startswith(text)
    assert last == f"  {tmp_path}/my model.wrong.onnx is not written"
    assert (tmp_path / "my model.wrong.onnx").read_bytes() == b"older"
    names = ["my model.onnx", "my model.safetensors", "my model.wrong.onnx"]
    assert sorted(os.listdir(tmp_path)) == names


def lower(bias):
    bias -= np.float32(1e4)


def test_file_without_a_local_runtime_is_written_unverified(run, tmp_path, monkeypatch):
    add_format(monkeypatch, "far", write_onnx, needs_macos=True)
    code, printed, errors = run("--include", "far")
    assert (code, errors) == (0, "")
    assert printed.splitlines()[-1].endswith(" MB; not verified: FAR runs only on macOS")
    assert (tmp_path / "my model.far.onnx").exists()


def test_file_with_no_detections_does_not_count_as_verified(run, monkeypatch):
    convert = write_onnx
    for level in (0, 1):
        convert = changing(f"model.4.m.{level}.bias", lower, convert)
    use_formats(monkeypatch, dataclasses.replace(format_named("onnx"), convert=convert))
    code, printed, errors = run("--nms", "--conf", "1")
    assert (code, errors) == (0, "")
    assert printed.splitlines()[-1].endswith(
        " MB; not verified: nothing is found in these images; give --data with images that show "
        "the model's classes"
    )


@pytest.mark.parametrize(
    ("name", "ending", "holds"),
    [
        ("openvino", "_openvino_model", "thesis.txt"),
        ("openvino", "_openvino_model", ""),  # a file
        ("onnx", ".onnx", "chapters/"),
    ],
)
def test_foreign_file_at_the_target_is_refused_first(tmp_path, name, ending, holds):
    weights = write_tiny_weights(tmp_path)
    place = tmp_path / f"{weights.stem}{ending}"
    work = place / holds if holds else place
    work.parent.mkdir(parents=True, exist_ok=True)
    work.mkdir() if holds.endswith("/") else work.write_text("of a week")
    text = refused(weights, "--include", name)
    assert text == f"{place} exists, and export.py did not write it; move it away"
    assert work.exists()


@pytest.mark.parametrize(
    ("name", "draw", "text"),
    [
        ("my model", lambda folder: write_small_dataset(folder, (*CLASS_NAMES, "sixth")),
         r"does not know: \['sixth'\]"),
        ("cls", write_small_dataset,
         "cls.safetensors: its task is classify; --data .* objects in parts of images"),
    ],
)  # fmt: skip
def test_data_of_other_classes_or_task_is_refused_first(
    run, tmp_path, monkeypatch, name, draw, text
):
    monkeypatch.setattr(job, "write_graph", None)
    with pytest.raises(UserError, match=text):
        run("--data", draw(tmp_path), name=name)


def refused(*words):
    with pytest.raises(UserError) as caught:
        config = parse_export_flags(["--weights", *map(str, words)])
        check_export(config.weights, config.include, "torch")
    return str(caught.value)


def test_exported_weights_are_refused(tmp_path):
    path = tmp_path / "x.onnx"
    path.touch()
    text = "is an exported file, which keeps too little of its model; give the weights that it was"
    assert text in refused(path)


def test_unwritable_folder_is_refused():
    text = "the files go beside --weights, into /proc: No such file or directory; copy the weights"
    assert refused("/proc/version").startswith(text)


def test_weights_in_an_absent_folder_are_named(tmp_path):
    path = tmp_path / "absent" / "x.pt"
    with pytest.raises(UserError, match=f"--weights {path}: no such file"):
        export.run(["--weights", str(path)])


def test_absent_program_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    text = refused(write_tiny_weights(tmp_path), "--include", "tflite")
    assert "--include tflite needs the program onnx2tf; install it: pipx install" in text


def test_absent_packages_are_listed_with_install_commands(tmp_path, monkeypatch):
    weights = write_tiny_weights(tmp_path)
    for name in ("onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, name, None)
    assert refused(weights, "--include", "openvino", "onnx").splitlines() == [
        f"--include onnx needs onnxruntime; install it: {install_command('onnxruntime')}",
        f"--include openvino needs openvino; install it: {install_command('openvino')}",
    ]


@pytest.mark.parametrize("backend", ["oneflow", "onnx"])
def test_traced_formats_need_pytorch(backend, tmp_path):
    """Also where its packages are absent, which would be installed in vain."""
    weights = str(write_tiny_weights(tmp_path))
    for name in ("torchscript", "ncnn", "coreml"):
        with pytest.raises(UserError) as caught:
            check_export(weights, ["onnx", name], backend)
        assert str(caught.value) == (
            f"--include {name} is made of a TorchScript trace, which backend '{backend}' cannot "
            "write; give --backend torch, or leave it out"
        )
    check_export(weights, ["torchscript"], "torch")
    assert FRAMEWORKS[use()].torchscript == device.supports("torchscript")


# Segmenters and classifiers.


def dataset_of(name, folder):
    """A small dataset for the task of stored weights."""
    if name == "seg":
        return with_names(write_outlined_dataset(folder), CLASS_NAMES)
    if name == "cls":
        return write_class_folders(folder, 15, 15, CLASS_NAMES)
    return write_small_dataset(folder, CLASS_NAMES)


BOXES = {"P", "R", "mAP50", "mAP50-95"}


@pytest.mark.parametrize(
    ("flags", "file", "columns"),
    [
        ("", "my model.onnx", BOXES),
        ("--nms", "my model.onnx", BOXES),
        ("", "seg.onnx", {"mAP50(B)", "mAP50(M)", "mAP50-95(M)"}),
        ("--int8", "seg.onnx", {"mAP50(B)", "mAP50(M)"}),
        ("", "cls.onnx", {"top1", "top5"}),
        ("--int8", "cls.onnx", {"top1", "top5"}),
        ("--nms", "free.onnx", BOXES),
        ("--int8", "free.onnx", BOXES),
        ("--include openvino", "free_openvino_model", BOXES),
        ("--include torchscript", "free.torchscript", BOXES),
    ],
)
def test_model_and_file_metrics_form_one_table(run, tmp_path, flags, file, columns):
    if "torchscript" in flags and not device.supports("torchscript"):
        pytest.skip("the backend writes no TorchScript")
    name = re.split(r"[._]", file)[0]
    data = dataset_of(name, tmp_path / "data")
    code, output, errors = run("--data", data, *flags.split(), name=name)
    assert code == 0, errors
    assert re.match(rf"files are compared with the model on \d+ images of --data {data}\n", output)
    assert re.search(r" [1-9]\d* of \d+ (detections|images) matched; largest difference: ", output)
    title, model, found = (line.replace(file, "file").split() for line in output.splitlines()[-3:])
    assert title[:2] == ["MB", "ms/image"] and columns <= set(title)
    assert (model[0], found[0]) == ("model", "file") and float(found[1]) > 0 < float(model[1])
    names = title[2:-2]  # without "largest difference"
    metrics = model[2:][: len(names)], found[3:][: len(names)]
    assert flags == "--int8" or metrics[0] == metrics[1]
    assert all(0 <= float(figure) <= 1 for figures in metrics for figure in figures)


@pytest.mark.parametrize("name", ["my model", "cls"])
def test_default_export_size_is_the_training_size(run, tmp_path, name):
    code, output, errors = run(size=(), name=name)
    assert code == 0, errors
    runtime = opening.open_runtime(tmp_path / f"{name}.onnx")
    assert runtime.metadata.image_size == (64, 64) and runtime.metadata.trained_size == 64
