"""The background of a built-in image: colour clouds, thin clutter, and noise over all.

Before: nothing but a generator. After: `scene.py`, which puts shapes between background and noise.
"""

from __future__ import annotations

import math

import cv2
import numpy as np


def draw_backdrop(generator: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Draw muted colour clouds with patches of stripes, scribbles and specks."""
    cells = 2 + int(4 * generator.random())
    clouds = [random_colour(generator, (0, 110), (40, 230)) for _ in range(cells * cells)]
    grid = np.array(clouds, np.uint8).reshape(cells, cells, 3)
    image = cv2.resize(grid, (size[1], size[0]), interpolation=cv2.INTER_CUBIC)
    for _ in range(int(4 * generator.random())):
        _stripes(generator, image)
    for _ in range(5 + int(20 * generator.random())):
        _scribble(generator, image)
    return image


def _stripes(generator: np.random.Generator, image: np.ndarray) -> None:
    """Draw parallel thin lines across the image."""
    colour = random_colour(generator, (0, 110), (40, 230)).tolist()
    height, width = image.shape[:2]
    angle = math.pi * generator.random()
    direction = np.array([math.cos(angle), math.sin(angle)])
    normal = np.array([-direction[1], direction[0]])
    spacing, reach = 8 + 24 * generator.random(), height + width
    first = generator.random(2) * [width, height]
    for step in range(3 + int(6 * generator.random())):
        middle = first + normal * spacing * step
        ends = np.round([middle - reach * direction, middle + reach * direction]).astype(int)
        cv2.line(image, ends[0].tolist(), ends[1].tolist(), colour, 1, cv2.LINE_AA)


def _scribble(generator: np.random.Generator, image: np.ndarray) -> None:
    """Draw a short open curve of a few segments, in any colour."""
    colour = random_colour(generator, (0, 255), (20, 255)).tolist()
    height, width = image.shape[:2]
    steps = (generator.random((2 + int(5 * generator.random()), 2)) - 0.5) * 0.2 * height
    points = np.cumsum(steps, axis=0) + generator.random(2) * [width, height]
    thickness = 1 + int(3 * generator.random())
    cv2.polylines(image, [np.round(points).astype(np.int32)], False, colour, thickness, cv2.LINE_AA)


def add_noise(generator: np.random.Generator, image: np.ndarray) -> np.ndarray:
    """Add slight blur to some images, and uniform noise of up to +-16 to all."""
    if generator.random() < 0.3:
        image = cv2.GaussianBlur(image, (3, 3), 0)
    strength = int(17 * generator.random())
    steps = ((np.arange(256) / 127.5 - 1) * strength).round().astype(np.int16)
    noise = steps[np.frombuffer(generator.bytes(image.size), np.uint8)]
    return np.clip(image + noise.reshape(image.shape), 0, 255).astype(np.uint8)


def random_colour(
    generator: np.random.Generator,
    saturation: tuple[int, int],
    value: tuple[int, int],
    hue: tuple[int, int] = (0, 180),
) -> np.ndarray:
    """Draw a BGR colour, (3,) float64, from ranges in OpenCV's 8-bit HSV; hues wrap at 180."""
    low, high = np.array([hue, saturation, value]).T
    hsv = (low + (high - low) * generator.random(3)) % [180, 256, 256]
    return cv2.cvtColor(hsv.astype(np.uint8)[None, None], cv2.COLOR_HSV2BGR)[0, 0].astype(
        np.float64
    )
