"""A notebook trains, validates and goes on after a mistake: its kernel is another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from duet.backend import use
from duet.utils.project import PROJECT
from tests.small import write_small_dataset, write_tiny_model

CELLS = (
    "import duet\nimport signal\nbefore = signal.getsignal(signal.SIGINT)",
    f"flags = dict(data='shapes/shapes.yaml', img=64, workers=2, backend={use()!r})",
    "run = duet.train(**flags, cfg='tiny.yaml', weights='', batch=4, epochs=2)",
    "found = duet.val(run.weights, **flags)\nfound.metrics.keys() == run.metrics.keys()",
    "duet.train(**flags, weights=run.weights, batch=4, epochs=1).folder.name",
    "try:\n    duet.train(**flags, epochs=0)\nexcept duet.UserError as error:\n    print(error)",
    "signal.getsignal(signal.SIGINT) is before",
)


def test_a_notebook_trains_twice_and_shows_what_a_mistake_is(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PROJECT), prepend=os.pathsep)
    write_small_dataset(tmp_path)
    write_tiny_model(tmp_path)
    path = tmp_path / "book.ipynb"
    cells = [code_cell(number, source) for number, source in enumerate(CELLS)]
    path.write_text(
        json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    execute = [sys.executable, "-c", "from nbclient.cli import main; main()", "--inplace", path]
    done = subprocess.run(execute, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    book = json.loads(path.read_text())
    shown = ["".join(map(text_of, cell["outputs"])) for cell in book["cells"]]
    assert "weights in runs/train/exp/weights" in shown[2] and "mAP50" in shown[2]
    assert shown[3].endswith("True")
    assert shown[4].endswith("'exp2'")
    assert shown[5] == "--epochs 0; accepted: a whole number of at least 1\n"
    assert shown[6] == "True"


def code_cell(number: int, source: str) -> dict[str, object]:
    return {"cell_type": "code", "id": f"cell{number}", "source": source, "metadata": {},
            "outputs": [], "execution_count": None}  # fmt: skip


def text_of(output: dict[str, Any]) -> str:
    return "".join(output.get("text") or output["data"]["text/plain"])
