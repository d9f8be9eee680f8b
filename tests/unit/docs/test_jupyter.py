"""Notebooks of tutorials in Jupyter: their cells print what the site's copies show."""

import json
import os
import subprocess
import sys

from docs.site.notebooks import notebook
from duet.utils.project import PROJECT

DOCS = PROJECT / "docs"
PAGES = ("en/tutorials/13-nms.md", "zh/tutorials/17-masks.md")


def printed_by(text):
    """What each cell with output printed; Jupyter splits it into lines, a library may warn."""
    outputs = [cell.get("outputs", ()) for cell in json.loads(text)["cells"]]
    printed = [
        "".join("".join(one["text"]) for one in cell if one["name"] == "stdout") for cell in outputs
    ]
    return [text.strip("\n") for text in printed if text]


def test_jupyter_runs_notebooks_and_prints_their_outputs(tmp_path):
    texts = [notebook((DOCS / page).read_text(encoding="utf-8"), DOCS) for page in PAGES]
    paths = [tmp_path / f"{number}.ipynb" for number in range(len(PAGES))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-c", "from nbclient.cli import main; main()", "--inplace", *paths],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        check=True,
        timeout=300,
    )
    for path, text in zip(paths, texts, strict=True):
        ran = printed_by(path.read_text(encoding="utf-8"))
        assert ran == printed_by(text) and len(ran) > 3
