"""Decode the raw maps of a file of `export.py --raw`. Needs NumPy; to run the file, onnxruntime and
Pillow too.

python decode.py best_raw.onnx picture.jpg          prints label score x1 y1 x2 y2, the best first
python decode.py best_raw.onnx picture.jpg FOLDER   also writes maps for decode.cpp into FOLDER

On a board, run the converted file instead of ONNX Runtime, and give its outputs to `rows_of_maps`.
"""

import json
import sys
from pathlib import Path

import numpy as np

CONFIDENCE, IOU = 0.25, 0.45  # detect.py's defaults
BINS = 16  # per edge of a box, of models without anchors


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cells_of(height, width):
    """Return the column and row of each cell, (H, W, 2)."""
    return np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1)


def by_anchor(maps, anchors):
    """Turn (A * K, H, W) into (A, H, W, K)."""
    return maps.reshape(anchors, -1, *maps.shape[1:]).transpose(0, 2, 3, 1)


def rows_of_maps(maps, about):
    """Return rows (N, 5 + C) of one image: cx, cy, w, h in pixels, objectness, class scores.

    maps: the outputs by name, without the batch, (K, H, W) each.
    about: the metadata `raw` of the file: form, strides, and anchors in pixels.
    """
    activate = (lambda x: x) if "sigmoid" in about["form"] else sigmoid
    split, rows = about["form"].startswith("split"), []
    for level, stride in enumerate(about["strides"]):
        names = ("box", "objectness", "classes") if split else ("maps",)
        parts = [maps[f"{x}_{stride}"].astype(np.float64) for x in names if f"{x}_{stride}" in maps]
        if about["anchors"]:
            sizes = np.reshape(about["anchors"][level], (-1, 1, 1, 2))
            values = activate(np.concatenate([by_anchor(x, len(sizes)) for x in parts], -1))
            cells = cells_of(*values.shape[1:3])
            centres = (values[..., :2] * 2 - 0.5 + cells) * stride
            values = np.concatenate(
                (centres, (values[..., 2:4] * 2) ** 2 * sizes, values[..., 4:]), -1
            )
        else:  # the distance to each edge is the mean of a distribution
            whole = np.concatenate(parts).transpose(1, 2, 0)
            edges = whole[..., : 4 * BINS].reshape(*whole.shape[:2], 4, BINS)
            powers = np.exp(edges - edges.max(-1, keepdims=True))
            distances = (powers / powers.sum(-1, keepdims=True)) @ np.arange(BINS)
            first, end = -distances[..., :2], distances[..., 2:]
            centres = (cells_of(*whole.shape[:2]) + 0.5 + (first + end) / 2) * stride
            scores = activate(whole[..., 4 * BINS :])
            ones = np.ones_like(scores[..., :1])
            values = np.concatenate((centres, (end - first) * stride, ones, scores), -1)
        rows.append(values.reshape(-1, values.shape[-1]))
    return np.concatenate(rows)


def best_boxes(rows):
    """Return boxes (K, 4) as x1, y1, x2, y2, scores (K,) and classes (K,) of rows (N, 5 + C)."""
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


def letterbox(image, height, width):
    """Return (1, 3, H, W) in [0, 1], and the scale and corner (x, y) of the picture in it."""
    scale = min(height / image.height, width / image.width)
    small = image.resize([max(1, round(side * scale)) for side in image.size])
    corner = (width - small.width) // 2, (height - small.height) // 2
    canvas = np.full((height, width, 3), 114, np.uint8)
    canvas[corner[1] : corner[1] + small.height, corner[0] : corner[0] + small.width] = small
    return canvas.transpose(2, 0, 1)[None].astype(np.float32) / 255, scale, corner


def main():
    import onnxruntime
    from PIL import Image, ImageOps

    session = onnxruntime.InferenceSession(sys.argv[1])
    texts = session.get_modelmeta().custom_metadata_map
    about, names, size = (json.loads(texts[x]) for x in ("raw", "class_names", "image_size"))
    image = ImageOps.exif_transpose(Image.open(sys.argv[2])).convert("RGB")
    pixels, scale, corner = letterbox(image, *size)
    outputs = session.run(None, {session.get_inputs()[0].name: pixels})
    maps = {x.name: y[0] for x, y in zip(session.get_outputs(), outputs, strict=True)}
    for box, score, number in zip(*best_boxes(rows_of_maps(maps, about)), strict=True):
        corners = (box.reshape(2, 2) - corner) / scale
        print(
            names[number],
            f"{score:.4f}",
            *(f"{x:.2f}" for x in corners.clip(0, image.size).ravel()),
        )
    if len(sys.argv) > 3:
        folder = Path(sys.argv[3])
        folder.mkdir(parents=True, exist_ok=True)
        np.concatenate([maps[f"maps_{x}"].ravel() for x in about["strides"]]).tofile(
            folder / "maps.bin"
        )
        lines = [f"{len(names)} {size[0]} {size[1]} {int(about['form'] == 'sigmoid')}"]
        lines += [
            " ".join(map(str, (x, *y)))
            for x, y in zip(about["strides"], about["anchors"], strict=True)
        ]
        (folder / "about.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
