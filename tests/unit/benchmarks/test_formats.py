"""benchmarks.formats: the files of a model in one table with it."""

import dataclasses
import json

import pytest

from benchmarks import formats
from tests.small import write_small_dataset
from tests.tiny_weights import CLASS_NAMES, write_tiny_weights


@pytest.fixture
def flags(monkeypatch, tmp_path):
    """The flags of one run, of ONNX without half precision."""
    onnx = formats.FORMATS[0]
    assert onnx.name == "onnx"
    row = dataclasses.replace(onnx, flags=tuple(set(onnx.flags) - {"half"}))
    monkeypatch.setattr(formats, "FORMATS", [row])
    data, weights = write_small_dataset(tmp_path), write_tiny_weights(tmp_path)
    assert len(CLASS_NAMES) == 5
    words = ["formats", "--weights", weights, "--data", data, "--img", 64, "--images", 4,
        "--timed", 2, "--threads", 1, 2, "--repeats", 1, "--device", "cpu",
        "--json", tmp_path / "formats.json"]  # fmt: skip
    monkeypatch.setattr("sys.argv", [str(word) for word in words])
    return tmp_path


def test_a_file_stands_beside_its_model(flags, capsys):
    formats.main()
    document = json.loads((flags / "formats.json").read_text())
    model, file, rounded = document["rows"]
    assert [(row["name"], row["precision"]) for row in (model, file, rounded)] == [
        ("model", "float32"), ("onnx", "float32"), ("onnx", "int8")
    ]  # fmt: skip
    assert model["map"] == pytest.approx(file["map"], abs=1e-6)
    assert model["largest_difference"] == 0 < file["largest_difference"] < 1e-3
    assert rounded["largest_difference"] > file["largest_difference"]
    assert set(file["milliseconds"]) == {"1", "2"}
    medians = {(timing["case"], timing["name"]): timing["median"] for timing in document["timings"]}
    assert medians["2 threads", "onnx float32"] == 2 * file["milliseconds"]["2"]
    heading, *lines = capsys.readouterr().out.splitlines()[-4:]
    assert heading.split()[:2] == ["format", "MB"]
    assert [line.split()[0] for line in lines] == ["model", "onnx", "onnx"]
