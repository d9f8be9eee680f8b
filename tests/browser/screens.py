"""Photograph Duet's own pages: python -m tests.browser.screens PUBLIC OWN

It writes docs/screen-check.webp, screen-audit.webp and screen-serve.webp. PUBLIC are the public
YOLOv5n, for the server; OWN are of the built-in dataset, as `make demo` leaves them, for the audit.
"""

from __future__ import annotations

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import base64
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np

from docs.figures.demo_plots import DOCS
from docs.figures.detect_photos import PHOTOGRAPHS
from duet.utils.cli.flags import new_parser
from duet.utils.data.shapes.dataset import ShapesConfig, draw_dataset
from duet.utils.processes.command import run_command
from duet.utils.project import PROJECT
from tests.browser.chromium import Page, chromium

SIZE_WH = 900, 660
QUALITY = 60
SECONDS = 3  # for a page to draw what it has loaded


def shoot(page: Page, name: str) -> None:
    """Write what the browser shows."""
    time.sleep(SECONDS)
    content = base64.b64decode(page.call("Page.captureScreenshot", format="png")["data"])
    pixels = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
    cv2.imwrite(str(DOCS / name), pixels, [cv2.IMWRITE_WEBP_QUALITY, QUALITY])


def spoil(folder: Path) -> None:
    """Make some labels wrong, as hands do: gone, doubled, of another class, shifted."""
    paths = sorted(folder.glob("labels/val/*.txt"))
    for number, path in enumerate(paths):
        lines = path.read_text().splitlines()
        name, *box = lines[0].split()
        changed = ([], [*lines, lines[0]], [" ".join([str((int(name) + 1) % 5), *box])],
                   [f"9 {' '.join(box)}"])[number % 4]  # fmt: skip
        path.write_text("\n".join([*changed, *lines[1:]]))


def main() -> None:
    parser = new_parser("python -m tests.browser.screens", "Photograph Duet's own pages.")
    parser.add_argument("public", type=Path, help="the public YOLOv5n")
    parser.add_argument("own", type=Path, help="weights of the built-in dataset")
    weights = parser.parse_args()
    command = [sys.executable, "-m", "duet"]
    os.environ["PYTHONPATH"] = str(PROJECT)  # for the commands, which run elsewhere
    with tempfile.TemporaryDirectory() as temporary, chromium() as page:
        folder = Path(temporary)
        draw_dataset(folder / "mydata", ShapesConfig(num_train=60, num_val=24, image_side=240))
        spoil(folder / "mydata")
        data = ["--data", "mydata/shapes.yaml"]
        subprocess.run([*command, "check", *data, "--out", "check"], cwd=folder, check=False)
        page.open(folder / "check" / "check.html", *SIZE_WH)
        shoot(page, "screen-check.webp")
        own = ["--weights", str(weights.own.resolve())]
        subprocess.run([*command, "audit", *data, *own], cwd=folder, check=True)
        page.open(folder / "runs" / "audit" / "exp" / "audit.html", *SIZE_WH)
        shoot(page, "screen-audit.webp")
        serve = [*command, "serve", "--port", "0", "--weights", str(weights.public.resolve())]
        server = subprocess.Popen(serve, cwd=folder, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        try:
            url = next(x for x in server.stdout if x.startswith("ready:")).split()[-1]
            page.open(url.removesuffix("v1/detect"), *SIZE_WH)
            time.sleep(SECONDS)
            page.choose_file("#file", PHOTOGRAPHS / "cup.jpg")
            shoot(page, "screen-serve.webp")
        finally:
            server.terminate()
            server.communicate()


if __name__ == "__main__":
    run_command(main)
