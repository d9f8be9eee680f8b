"""Objects that move, cross, hide and leave; and what a detector would find of them."""

from __future__ import annotations

import numpy as np

from utils.detections import Detections

WIDTH, HEIGHT = 640, 360
WALL = (300.0, 360.0)  # pixels from the left between which nothing can be seen


def draw_scene(seed: int, frames: int = 150, objects: int = 12) -> list[Detections]:
    """What is found in each frame; `class_index` is the number of the object, -1 for none.

    Half of the objects go to the right and half to the left.
    """
    random = np.random.default_rng(seed)
    size = random.uniform(40, 80, (objects, 2))
    speed = random.uniform(2, 8, objects) * np.where(np.arange(objects) % 2, 1, -1)
    from_left, from_right = random.uniform((-40, 520), (120, 680), (objects, 2)).T
    start = np.where(speed > 0, from_left, from_right)
    height = random.uniform(60, HEIGHT - 60, objects)
    time = np.arange(frames)[:, None]
    wave = 8 * np.sin(time / 15 + np.arange(objects))
    centre = np.stack([start + speed * time, height + wave], axis=-1)
    boxes = np.concatenate([centre - size / 2, centre + size / 2], axis=-1)
    return [_detect(random, *seen) for seen in zip(boxes, _visible(boxes), strict=True)]


def _visible(boxes: np.ndarray) -> np.ndarray:
    """(T, N) in [0, 1] of boxes (T, N, 4): what is neither hidden nor outside."""
    left, right = boxes[..., 0], boxes[..., 2]
    width = right - left
    inside = np.clip(np.minimum(right, WIDTH) - np.maximum(left, 0), 0, None) / width
    wall = np.clip(np.minimum(right, WALL[1]) - np.maximum(left, WALL[0]), 0, None) / width
    visible = inside - wall
    for near in range(boxes.shape[1]):  # an object hides those with a higher number
        for far in range(near + 1, boxes.shape[1]):
            shared = np.minimum(boxes[:, near, 2:], boxes[:, far, 2:]) - np.maximum(
                boxes[:, near, :2], boxes[:, far, :2]
            )
            area = np.prod(boxes[:, far, 2:] - boxes[:, far, :2], axis=-1)
            visible[:, far] -= np.prod(np.clip(shared, 0, None), axis=-1) / area
    return np.clip(visible, 0, 1)


def _detect(random: np.random.Generator, boxes: np.ndarray, visible: np.ndarray) -> Detections:
    """A score falls with what is visible; some are missed, some frames have a false one."""
    scores = np.clip(0.9 * visible + random.normal(0, 0.05, len(boxes)), 0, 1)
    size = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    noisy = boxes + random.normal(0, 0.03, boxes.shape) * size
    found = np.flatnonzero((scores > 0.1) & (random.random(len(boxes)) > 1 / 30))
    noisy, scores = noisy[found], scores[found]
    if random.random() < 0.2:
        corner = random.uniform((0, 0), (WIDTH - 40, HEIGHT - 40))
        noisy = np.concatenate([noisy, np.concatenate([corner, corner + 40])[None]])
        scores = np.append(scores, random.uniform(0.1, 0.4))
        found = np.append(found, -1)
    order = np.argsort(-scores, kind="stable")
    return Detections(noisy.astype(np.float32), scores.astype(np.float32), found).take(order)


def count_switches(objects: list[np.ndarray], ids: list[np.ndarray]) -> tuple[int, int]:
    """How often an object gets another id than its last one; and how many have one at all.

    Args:
        objects: (K,) of each frame, -1 for what is none.
        ids: (K,) of each frame, from 1; less for none.
    """
    last: dict[int, int] = {}
    switches = 0
    for frame_objects, frame_ids in zip(objects, ids, strict=True):
        for item, number in zip(frame_objects.tolist(), frame_ids.tolist(), strict=True):
            if item >= 0 and number > 0:
                switches += last.get(item, number) != number
                last[item] = number
    return switches, len(last)
