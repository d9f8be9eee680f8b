"""Tiled images with boxes: training batches and validation results.

Boxes are drawn as by detect.py.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from duet.utils.colours import WHITE
from duet.utils.data.image.decoding import choose_reduction
from duet.utils.data.image.image_file import save_image
from duet.utils.data.image.letterbox import resize
from duet.utils.data.loading.batch import Targets
from duet.utils.data.masks.runs import areas, mask_of_runs, runs_of_mask
from duet.utils.data.sources.samples import Sample, decode
from duet.utils.errors import DatasetError
from duet.utils.evaluation.coco.metric import Example
from duet.utils.geometry.boxes import cxcywh_to_xyxy
from duet.utils.geometry.detections import Ragged
from duet.utils.report.drawing import (
    default_font_size,
    draw_boxes,
    draw_masks,
    drawable_name,
    label_height,
    label_image,
)
from duet.utils.report.plots.style import cut
from duet.utils.text import printable

MAX_TILES = 16
MAX_SIDE = 1920  # all tiles together, pixels
TILE = MAX_SIDE // 4  # per tile; smaller images are enlarged so that labels do not cover them
GROUND = 235  # grey around an image that is not square
log = logging.getLogger("plots")


def _draw_objects(tile: np.ndarray, objects: Any, sample: Sample) -> None:
    masks: Ragged | None = getattr(objects, "masks", None)
    if masks is not None:
        order, rows = np.argsort(areas(masks), kind="stable"), masks.rows()
        size = sample.height, sample.width
        unpacked = (mask_of_runs(rows[index], size) for index in order.tolist())
        _draw_masks(tile, unpacked, objects.class_index[order])


def _draw_masks(tile: np.ndarray, masks: Iterator[np.ndarray], class_index: np.ndarray) -> None:
    size_wh, nearest = tile.shape[1::-1], cv2.INTER_NEAREST_EXACT  # at pixel centres
    fitted = (cv2.resize(mask.astype(np.uint8), size_wh, interpolation=nearest) for mask in masks)
    runs = Ragged.of([runs_of_mask(mask.astype(bool)) for mask in fitted], np.uint32)
    draw_masks(tile, runs, class_index)


def plot_batch(
    images: np.ndarray, targets: Targets, class_names: Sequence[str], path: Path
) -> None:
    """Write a JPEG of the first 16 images (B, 3, H, W) uint8 RGB of a batch with their boxes."""
    height, width = images.shape[2:]
    shown = images[:MAX_TILES]
    rows, columns = _grid(len(shown))
    scale = max(TILE / max(height, width), 1.0)
    scale = min(scale, MAX_SIDE / max(rows * height, columns * width))
    size = max(round(height * scale), 1), max(round(width * scale), 1)
    tiles = []
    for index, image in enumerate(shown):
        mine = targets.image_index == index
        boxes_xyxy = cxcywh_to_xyxy(targets.boxes_cxcywh_norm[mine]) * (*size[::-1], *size[::-1])
        tile = resize(np.ascontiguousarray(image.transpose(1, 2, 0)), size)
        masks = targets.take(mine).masks
        if masks is not None:
            tile = tile.copy()  # may be a view of the batch if not resized
            places = zip(masks.map_index.tolist(), masks.value.tolist(), strict=True)
            unpacked = (masks.maps[place] == value for place, value in places)
            _draw_masks(tile, unpacked, targets.class_index[mine])
        tiles.append(_with_labels(tile, boxes_xyxy, targets.class_index[mine], class_names))
    write_tiles(tiles, path)


def plot_examples(
    examples: Mapping[int, Example],
    samples: Sequence[Sample],
    class_names: Sequence[str],
    folder: Path,
) -> None:
    """Write JPEGs of validation images, 16 per file: val_batch0_labels.jpg, val_batch0_pred.jpg.

    Images that can no longer be read are grey and logged.

    examples: by sample index, ascending.
    """
    places = list(examples)
    for number, start in enumerate(range(0, len(places), MAX_TILES)):
        label_tiles, found_tiles = [], []
        for place in places[start : start + MAX_TILES]:
            found, truth = examples[place]
            tile, scale = read_tile(samples[place])
            found_tile = tile.copy()
            for drawn, objects in ((tile, truth), (found_tile, found)):
                _draw_objects(drawn, objects, samples[place])
            labelled = truth.boxes_xyxy * scale, truth.class_index, class_names
            label_tiles.append(framed(_with_labels(tile, *labelled), samples[place]))
            scores = [f" {score:.2f}" for score in found.scores.tolist()]
            texts = _texts(found.class_index, class_names)
            texts = [text + score for text, score in zip(texts, scores, strict=True)]
            boxes_xyxy = found.boxes_xyxy * scale
            drawn = draw_boxes(found_tile, boxes_xyxy, found.class_index, texts)
            found_tiles.append(framed(drawn, samples[place]))
        write_tiles(label_tiles, folder / f"val_batch{number}_labels.jpg")
        write_tiles(found_tiles, folder / f"val_batch{number}_pred.jpg")


def read_tile(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Return an image with long side TILE, and the scale (4,) of its xyxy pixels."""
    scale = TILE / max(sample.height, sample.width)
    height, width = (max(round(side * scale), 1) for side in (sample.height, sample.width))
    try:
        reduced = decode(sample, choose_reduction((sample.height, sample.width), TILE))
        image = resize(cv2.cvtColor(reduced, cv2.COLOR_BGR2RGB), (height, width))
    except DatasetError as error:  # must not end a run that is otherwise finished
        log.warning("missing in the plots: %s", error)
        image = np.full((height, width, 3), GROUND, np.uint8)
    return image, np.array([width / sample.width, height / sample.height] * 2)


def _with_labels(
    tile: np.ndarray, boxes_xyxy: np.ndarray, class_index: np.ndarray, class_names: Sequence[str]
) -> np.ndarray:
    """Return a tile (H, W, 3) with boxes (K, 4) and names, largest first."""
    area = (boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]).prod(axis=1)
    order = np.argsort(-area, kind="stable")
    texts = _texts(class_index[order], class_names)
    return draw_boxes(tile, boxes_xyxy[order], class_index[order], texts)


def _texts(class_index: np.ndarray, class_names: Sequence[str]) -> list[str]:
    return [cut(drawable_name(class_names[index], index)) for index in class_index.tolist()]


def framed(image: np.ndarray, sample: Sample) -> np.ndarray:
    """Return a square of side TILE with a centred image and its file name below."""
    height, width = image.shape[:2]
    letters = default_font_size((TILE, TILE))
    frame = np.full((TILE + label_height(letters), TILE, 3), GROUND, np.uint8)
    top, left = (TILE - height) // 2, (TILE - width) // 2
    frame[top : top + height, left : left + width] = image
    name = label_image(printable(sample.image_path.name), letters, WHITE, TILE)
    frame[TILE:] = 255
    frame[TILE:, : name.shape[1]] = name
    return frame


def _grid(number: int) -> tuple[int, int]:
    columns = math.ceil(math.sqrt(number))
    return math.ceil(number / columns), columns


def write_tiles(tiles: Sequence[np.ndarray], path: Path) -> None:
    """Write tiles of equal size (H, W, 3), at least one, as a JPEG with white separators."""
    rows, columns = _grid(len(tiles))
    height, width = tiles[0].shape[:2]
    mosaic = np.full((rows * height, columns * width, 3), 255, np.uint8)
    for index, tile in enumerate(tiles):
        top, left = index // columns * height, index % columns * width
        mosaic[top : top + height, left : left + width] = tile
    mosaic[height::height] = mosaic[:, width::width] = 255
    save_image(path, mosaic)
