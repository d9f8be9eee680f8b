"""Photograph Duet's own pages: python -m tests.browser.screens

It writes docs/screen-check.webp, screen-audit.webp and screen-serve.webp from what a model of
`make demo` and the public YOLOv5n have found (docs/detections.json, docs/photos.json): no weights.
"""

import base64
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from docs.figures.demo_plots import DOCS, stored_detections
from docs.figures.pictures import CLASS_NAMES, FOUND_IN_PHOTOS, PHOTOGRAPHS, shapes_file
from duet.models.evaluation.audit import report as audit_report
from duet.models.evaluation.audit.findings import WORTH, Auditor
from duet.models.evaluation.audit.report import Audit
from duet.utils.colours import hex_colours
from duet.utils.data.check.__main__ import run as check
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import ground_truth
from duet.utils.data.sources.splits import load_split
from duet.utils.evaluation.coco.metric import DetectionEvaluator
from duet.utils.files.json_files import read_json
from duet.utils.geometry.boxes import xyxy_to_cxcywh
from duet.utils.processes.command import run_command
from duet.utils.project import PROJECT
from tests.browser.chromium import Page, chromium

SIZE_WH, QUALITY = (900, 660), 60
SPLITS = {"train": range(400, 412), "val": range(412, 436)}
SECONDS = 1  # for a page to draw what it has loaded
YAML = f"train: images/train\nval: images/val\nnames: {json.dumps(CLASS_NAMES)}\n"
# Answers as those of the server (docs/en/serve.md).
STUB = """window.fetch = async (to) =>
  new Response(JSON.stringify(`${to}`.endsWith("v1/model") ? %s : %s));"""
MODEL: dict[str, Any] = {
    "name": "yolov5n", "task": "detect", "runs_in": "PyTorch, cpu",
    "class_names": ["cup", "dining table", *[""] * 78],
    "defaults": {"conf": 0.25, "iou": 0.45, "max_det": 1000},
}  # fmt: skip


def spoiled(number: int, lines: list[str]) -> list[str]:
    """Return labels that are wrong as by hand: gone, doubled, of another or no class."""
    name, box = lines[0].split(maxsplit=1)
    first = ([], [lines[0]] * 2, [f"{(int(name) + 1) % 5} {box}"], [f"9 {box}"])[number % 4]
    return [*first, *lines[1:]]


def draw_data(folder: Path) -> None:
    """Write images of the built-in dataset with spoiled labels."""
    for split, indices in SPLITS.items():
        for name in ("images", "labels"):
            (folder / name / split).mkdir(parents=True)
        for index in indices:
            scene = shapes_file(index)
            boxes = xyxy_to_cxcywh(scene.boxes_xyxy) / np.tile(scene.image.shape[1::-1], 2)
            lines = [" ".join([str(name), *(f"{value:.6f}" for value in box)])
                     for name, box in zip(scene.class_index, boxes, strict=True)]  # fmt: skip
            cv2.imwrite(str(folder / f"images/{split}/{index}.png"), scene.image)
            path = folder / f"labels/{split}/{index}.txt"
            path.write_text("\n".join(spoiled(index, lines)), encoding="utf-8")
    (folder / "mydata.yaml").write_text(YAML, encoding="utf-8")


def audit_page(folder: Path) -> None:
    """Write the page of `duet audit`, with the findings of stored detections."""
    dataset = load_dataset(folder / "mydata.yaml")
    samples = load_split(dataset, "val")
    auditor = Auditor(WORTH, np.full(len(CLASS_NAMES), True))
    evaluator, found = DetectionEvaluator(CLASS_NAMES), stored_detections()
    for place, sample in enumerate(samples):
        detections = found[int(sample.image_path.stem)]
        labels = ground_truth(sample)
        auditor.add(place, detections, labels, (sample.height, sample.width))
        evaluator.add(place, detections, labels)
    metrics = {"mAP50": evaluator.result().map50}
    audit = Audit(dataset.name, "val", ["best.safetensors"], metrics, samples, CLASS_NAMES,
                  auditor.result())  # fmt: skip
    (folder / "audit.html").write_text(audit_report.audit_page(audit, top=8), encoding="utf-8")


def answers() -> tuple[str, str]:
    """Return what a server says of its models, and of the cup, as JSON."""
    rows = read_json(FOUND_IN_PHOTOS)["images"]["cup.jpg"]
    found = [{**one, "class_index": MODEL["class_names"].index(one["name"])} for one in rows]
    answer = {"model": "yolov5n", "image": {"width": 600, "height": 400}, "detections": found,
              "milliseconds": {"decode": 2.1, "network": 24.3, "total": 27.9}}  # fmt: skip
    return json.dumps({"models": [MODEL]}), json.dumps(answer)


def shoot(page: Page) -> np.ndarray:
    """Return what the browser shows, (H, W, 3) uint8 BGR."""
    time.sleep(SECONDS)
    content = base64.b64decode(page.call("Page.captureScreenshot", format="png")["data"])
    return cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)


def screens() -> dict[str, np.ndarray]:
    """Return the pictures by their names in docs/."""
    with tempfile.TemporaryDirectory() as temporary, chromium() as page:
        folder, made = Path(temporary) / "mydata", {}
        draw_data(folder)
        check(["--data", str(folder / "mydata.yaml"), "--out", str(folder)])
        audit_page(folder)
        for name in ("check", "audit"):
            page.open(folder / f"{name}.html", *SIZE_WH)
            made[f"screen-{name}.webp"] = shoot(page)
        page.call("Page.addScriptToEvaluateOnNewDocument", source=STUB % answers())
        text = (PROJECT / "utils" / "serve" / "page.html").read_text(encoding="utf-8")
        text = text.replace("COLOURS_OF_CLASSES", " ".join(hex_colours()))
        (folder / "serve.html").write_text(text, encoding="utf-8")
        page.open(folder / "serve.html", *SIZE_WH)
        page.choose_file("#file", PHOTOGRAPHS / "cup.jpg")
        made["screen-serve.webp"] = shoot(page)
    return made


def main() -> None:
    for name, pixels in screens().items():
        cv2.imwrite(str(DOCS / name), pixels, [cv2.IMWRITE_WEBP_QUALITY, QUALITY])


if __name__ == "__main__":
    run_command(main)
