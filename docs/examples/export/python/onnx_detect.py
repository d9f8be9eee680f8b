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


def letterbox(image, height, width, multiple):
    """Return what the network takes, (1, 3, H, W) in [0, 1], and where the picture lies in it."""
    scale = min(height / image.height, width / image.width)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    if multiple:  # the file takes any size: the least grey is best
        width, height = (-(-side // multiple) * multiple for side in size)
    left, top = (width - size[0]) // 2, (height - size[1]) // 2
    canvas = Image.new("RGB", (width, height), (114, 114, 114))
    canvas.paste(resize(image, size), (left, top))
    pixels = np.asarray(canvas, np.float32).transpose(2, 0, 1)[None] / 255
    return pixels, (left, top), (size[0] / image.width, size[1] / image.height)


def resize(image, size):
    """Interpolate between four pixels, as the model's pictures were; average when below half."""
    if 2 * max(size) < max(image.size):
        return image.resize(size, Image.Resampling.BOX)
    # Pillow's own bilinear `resize` reads more pixels when it shrinks.
    steps = image.width / size[0], 0, 0, 0, image.height / size[1], 0
    return image.transform(size, Image.Transform.AFFINE, steps, Image.Resampling.BILINEAR)


def best_boxes(rows):
    """Return boxes (K, 4) as x1, y1, x2, y2, scores (K,) and classes (K,) of rows (N, 5 + C)."""
    rows = rows[rows[:, 4] > CONFIDENCE]
    scores = rows[:, 4:5] * rows[:, 5:]
    classes, scores = scores.argmax(axis=1), scores.max(axis=1)
    boxes = np.hstack((rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2))
    order = np.argsort(-scores, kind="stable")
    order, kept = order[scores[order] > CONFIDENCE], []
    while len(order):
        best, rest = order[0], order[1:]
        kept.append(best)
        differs = classes[rest] != classes[best]
        order = rest[differs | (overlap(boxes[best], boxes[rest]) <= IOU)]
    return boxes[kept], scores[kept], classes[kept]


def overlap(box, boxes):
    """Return the IoU of a box with each of others."""
    sides = np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])
    common = sides.clip(0).prod(axis=1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    return common / np.maximum((box[2:] - box[:2]).prod() + areas - common, 1e-9)


session = onnxruntime.InferenceSession(sys.argv[1])
about = {name: json.loads(text) for name, text in
         session.get_modelmeta().custom_metadata_map.items()}  # fmt: skip
if (about["image"], about["output"]) != ("floats", "rows"):
    sys.exit("this file letterboxes or has NMS in it; see onnx_detect_nms.py")
image = ImageOps.exif_transpose(Image.open(sys.argv[2])).convert("RGB")
multiple = about["stride"] if about["dynamic"] else None
pixels, offset, scale = letterbox(image, *about["image_size"], multiple)
rows = session.run(None, {session.get_inputs()[0].name: pixels})[0][0]
boxes, scores, classes = best_boxes(rows)
boxes = ((boxes - offset * 2) / (scale * 2)).clip(0, image.size * 2)
for box, score, number in zip(boxes, scores, classes, strict=True):
    print(about["class_names"][number], f"{score:.4f}", *(f"{side:.2f}" for side in box))
