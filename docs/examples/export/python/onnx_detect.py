"""Detect with an ONNX file of export.py. Needs onnxruntime, NumPy and Pillow alone.

python onnx_detect.py best.onnx picture.jpg
Prints a line a box, the best first: label score x1 y1 x2 y2, in pixels of the picture.
"""

import json
import sys

import numpy as np
import onnxruntime
from PIL import Image, ImageOps

CONFIDENCE, IOU = 0.25, 0.45  # detect.py's defaults
NEEDED = {"image", "output", "dynamic", "stride", "image_size", "class_names"}


def letterbox(image, size, multiple):
    """Return (1, 3, H, W) in [0, 1], and the picture's corner and size in it, as (x, y)."""
    before = np.array(image.shape[:2])
    after = np.maximum(1, np.round(before * min(size / before))).astype(int)
    size = -(-after // multiple) * multiple if multiple else size  # the least grey is best
    rows = resize_rows(image.astype(float), after[0])
    pixels = resize_rows(rows.swapaxes(0, 1), after[1]).swapaxes(0, 1)
    canvas, (top, left) = np.full((*size, 3), 114.0), (size - after) // 2
    canvas[top : top + after[0], left : left + after[1]] = np.floor(pixels + 0.5)
    return canvas.transpose(2, 0, 1)[None].astype(np.float32) / 255, (left, top), after[::-1]


def resize_rows(image, number):
    """Interpolate between two rows, as detect.py does."""
    places = (np.arange(number) + 0.5) * (len(image) / number) - 0.5
    above = (places := places.clip(0, len(image) - 1)).astype(int)
    below, part = np.minimum(above + 1, len(image) - 1), (places - above)[:, None, None]
    return image[above] * (1 - part) + image[below] * part


def best_boxes(rows):
    """Return boxes (K, 4) as x1, y1, x2, y2, scores (K,) and classes (K,) of rows (N, 5 + C)."""
    rows = rows[rows[:, 4] > CONFIDENCE]
    scores = rows[:, 4:5] * rows[:, 5:]
    classes, scores = scores.argmax(axis=1), scores.max(axis=1)
    boxes = np.hstack((rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2))
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    order = np.argsort(-scores, kind="stable")
    order, kept = order[scores[order] > CONFIDENCE], []
    while len(order):
        best, rest = order[0], order[1:]
        kept.append(best)
        starts = np.maximum(boxes[best, :2], boxes[rest, :2])
        common = (np.minimum(boxes[best, 2:], boxes[rest, 2:]) - starts).clip(0).prod(axis=1)
        overlaps = common > IOU * (areas[best] + areas[rest] - common)
        order = rest[~overlaps | (classes[rest] != classes[best])]
    return boxes[kept], scores[kept], classes[kept]


try:
    session = onnxruntime.InferenceSession(sys.argv[1])
    texts = session.get_modelmeta().custom_metadata_map
    about = {name: json.loads(texts[name]) for name in NEEDED & texts.keys()}
    image = np.array(ImageOps.exif_transpose(Image.open(sys.argv[2])).convert("RGB"))
except Exception as error:
    sys.exit(f"usage: {sys.argv[0]} FILE PICTURE; no file of export.py, or no picture: {error}")
if (about.get("image"), about.get("output")) != ("floats", "rows"):
    sys.exit("no file of export.py, or one with NMS")
multiple = about["dynamic"] and about["stride"]  # of the sides
pixels, corner, size = letterbox(image, np.array(about["image_size"]), multiple)
found = best_boxes(session.run(None, {session.get_inputs()[0].name: pixels})[0][0])
for box, score, number in zip(*found, strict=True):
    corners = ((box.reshape(2, 2) - corner) * image.shape[1::-1] / size).clip(0, image.shape[1::-1])
    print(about["class_names"][number], f"{score:.4f}", *(f"{x:.2f}" for x in corners.ravel()))
