"""Training sees an image as Chromium shows it on a white page; so labelling tools show it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest

from tests.browser.chromium import chromium
from tests.unit.data.image.kinds_of_images import KINDS, turned
from utils.data.image.limits import MAX_PIXELS
from utils.media.image_file import decode_image

SHOWN = ("AVIF", "BMP", "GIF", "JPEG", "PNG", "WEBP")  # it shows no TIFF
# What differs, and why: 16 bits that hold fewer are black there, and an image that is transparent
# everywhere is not there at all.
OTHERWISE = {"PNG 12 of 16 bits", "PNG 10 of 16 bits", "PNG 8 of 16 bits", "PNG empty alpha"}
FILES = {name: kind.content for name, kind in KINDS.items() if name.startswith(SHOWN)} | {
    f"{form} turned {orientation}": turned(form, orientation)
    for form in ("AVIF", "JPEG", "PNG", "WEBP")
    for orientation in range(1, 9)
}
PIXELS = """
(() => {
    const found = [];
    for (const image of document.images) {
        const canvas = document.createElement("canvas");
        canvas.width = image.naturalWidth;
        canvas.height = image.naturalHeight;
        const context = canvas.getContext("2d");
        context.fillStyle = "white";
        context.fillRect(0, 0, canvas.width, canvas.height);
        context.drawImage(image, 0, 0);
        const data = context.getImageData(0, 0, canvas.width, canvas.height).data;
        found.push([canvas.height, canvas.width, Array.from(data)]);
    }
    return JSON.stringify(found);
})()
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> dict[str, np.ndarray]:
    page_file = tmp_path_factory.mktemp("page") / "page.html"
    images = "".join(f'<img src="{address(name)}">' for name in FILES)
    page_file.write_text(f"<!DOCTYPE html><title>.</title>{images}")
    with chromium() as page:
        page.open(Path(page_file), 800)
        found = json.loads(page.evaluate(PIXELS))
    return {
        name: np.array(data, np.uint8).reshape(height, width, 4)[..., :3]
        for name, (height, width, data) in zip(FILES, found, strict=True)
    }


def address(name: str) -> str:
    kind = name.split()[0].lower()
    return f"data:image/{kind};base64,{base64.b64encode(FILES[name]).decode()}"


@pytest.mark.parametrize("name", [name for name in FILES if name not in OTHERWISE])
def test_an_image_is_what_the_browser_shows(seen, name):
    ours = decode_image(FILES[name], MAX_PIXELS)
    assert ours.shape == seen[name].shape
    difference = np.abs(ours.astype(int) - seen[name])
    # Its decoders round and interpolate colours in their own way.
    assert difference.max() <= 12 and difference.mean() <= 2
