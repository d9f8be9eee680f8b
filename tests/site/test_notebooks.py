"""Notebooks of tutorials in Jupyter: their cells print what the site's copies show."""

from __future__ import annotations

import json
import os
import subprocess

from docs.site.notebooks import notebook
from duet.utils.project import PROJECT
from tests.site.build import SECONDS, docs_python

DOCS = PROJECT / "docs"
PAGES = ("en/tutorials/13-nms.md", "zh/tutorials/17-masks.md")


def printed_by(text):
    """What each cell with outputs printed; Jupyter splits it into lines."""
    cells = [cell for cell in json.loads(text)["cells"] if cell.get("outputs")]
    return [
        "".join("".join(output["text"]) for output in cell["outputs"]).strip("\n") for cell in cells
    ]


def test_jupyter_runs_notebooks_and_prints_what_they_show(tmp_path):
    """By nbclient and ipykernel of .venv/docs, with the packages of .venv/torch."""
    program = docs_python().parent / "jupyter-execute"
    packages = next((PROJECT / ".venv" / "torch" / "lib").glob("python3*/site-packages"))
    texts = [notebook((DOCS / page).read_text(encoding="utf-8"), DOCS) for page in PAGES]
    paths = [tmp_path / f"{number}.ipynb" for number in range(len(PAGES))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    subprocess.run(
        [program, "--inplace", *paths],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{PROJECT}:{packages}", "YOLO_BACKEND": "torch"},
        check=True,
        timeout=SECONDS,
    )
    for path, text in zip(paths, texts, strict=True):
        ran = printed_by(path.read_text(encoding="utf-8"))
        assert ran == printed_by(text) and len(ran) > 3
