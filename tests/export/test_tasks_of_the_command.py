"""export.py --data of a segmenter and a classifier: figures of their tasks, in 8 bits too."""

from __future__ import annotations

import dataclasses
import shutil
import sys

import cv2
import pytest

import export
from models.export import job
from tests.export.recorded_files import write_graphs
from tests.small import SMALL_SHAPES
from tests.tiny_tasks import tiny_classifier, tiny_segmenter
from tests.tiny_weights import noise, write_checkpoint
from utils.data.shapes.dataset import draw_dataset
from utils.errors import UserError

SIZE = ("--imgsz", "64")


def trained_at(size, checkpoint):
    header = dataclasses.replace(checkpoint.header, settings={"image_size": size})
    return dataclasses.replace(checkpoint, header=header)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tasks")


@pytest.fixture(scope="module")
def graphs(folder):
    """By the name of the weights, and whether NMS is in it."""
    write_checkpoint(folder / "seg.safetensors", tiny_segmenter(folder))
    write_checkpoint(folder / "cls.safetensors", trained_at(64, tiny_classifier(folder)))
    words = {
        f"{name}{nms}": ["--weights", str(folder / f"{name}.safetensors"), *SIZE, *nms.split()]
        for name, nms in (("seg", ""), ("seg", " --nms"), ("cls", ""))
    }
    return write_graphs(folder, words)


@pytest.fixture
def run(folder, graphs, tmp_path, monkeypatch, capsys):
    """Run the command in this process; return its exit code and what it printed."""
    monkeypatch.setattr(job, "write_graph", lambda config, path: shutil.copy(
        graphs[f"{given[0]}{' --nms' if config.nms else ''}"], path
    ))  # fmt: skip
    given = [""]

    def run(name, *flags, size=SIZE):
        given[0] = name
        shutil.copy(folder / f"{name}.safetensors", tmp_path)
        words = ["export.py", "--weights", str(tmp_path / f"{name}.safetensors"), *size]
        monkeypatch.setattr(sys, "argv", [*words, *map(str, flags)])
        code = 0
        try:
            export.main()
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return run


def outlined(folder):
    return draw_dataset(folder, dataclasses.replace(SMALL_SHAPES, outlines=True))


def classes(folder):
    """Three images of each class in folders."""
    for split in ("train", "val"):
        for index, name in enumerate("abcde"):
            (folder / split / name).mkdir(parents=True)
            for seed in range(3):
                image = noise(64, 80, seed=10 * index + seed)
                cv2.imwrite(str(folder / split / name / f"{seed}.png"), image)
    return folder


def figures_of(output):
    """The rows of the table by their first word, with the figures as numbers."""
    lines = output.splitlines()
    first = next(index for index, line in enumerate(lines) if line.split()[0] == "MB")
    names = lines[first].split()[1:-2]  # without "largest difference"
    rows = {line.split()[0]: line.split() for line in lines[first + 1 :]}
    skipped = {"model": 1}
    return {
        name: dict(zip(names, map(float, words[skipped.get(name, 2) :][: len(names)]), strict=True))
        for name, words in rows.items()
    }


def test_a_segmenter_in_float32_and_8_bits_has_figures_of_boxes_and_masks(run, folder):
    data = outlined(folder / "outlined")
    for flags in ([], ["--int8"]):
        code, output, errors = run("seg", "--data", data, *flags)
        assert code == 0, errors
        found = figures_of(output)
        assert {"mAP50(B)", "mAP50(M)", "mAP50-95(M)"} <= found["model"].keys()
        if not flags:
            assert found["seg.onnx"] == found["model"]


def test_the_size_of_a_classifier_is_that_of_its_training(run, folder):
    code, output, errors = run("cls", size=())
    assert code == 0, errors
    assert "8 of 8 images matched" in output


def test_a_segmenter_with_masks_in_the_graph_is_scored_with_them(run, folder):
    data = outlined(folder / "outlined nms")
    code, output, errors = run("seg", "--nms", "--data", data)
    assert code == 0 and "1 - IoU of masks" in output, errors
    found = figures_of(output)
    boxes = [name for name in found["model"] if name.endswith("(B)")]
    assert [found["seg.onnx"][name] for name in boxes] == [found["model"][name] for name in boxes]


def test_a_classifier_in_float32_and_8_bits_has_accuracies(run, folder):
    data = classes(folder / "classes")
    for flags in ([], ["--int8"]):
        code, output, errors = run("cls", "--data", data, *flags)
        assert code == 0, errors
        found = figures_of(output)
        assert list(found["model"]) == ["top1", "top5"]
    assert "images matched; largest difference: probabilities" in output


def test_data_of_another_task_are_refused(run, folder):
    data = draw_dataset(folder / "boxes", SMALL_SHAPES)
    text = "cls.safetensors: the model is to classify; --data .* of objects in parts of images"
    with pytest.raises(UserError, match=text):
        run("cls", "--data", data)
