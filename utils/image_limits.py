"""How large an image may be."""

from __future__ import annotations

MIN_SIDE = 10
MAX_SIDE = 1 << 20  # OpenCV decodes no larger side, and no more than
MOST_PIXELS = 1 << 30
MAX_PIXELS = 200_000_000  # unless the flag says otherwise: 600 MB decoded
MAX_IMAGE_BYTES = 1 << 30  # of an image file, which is read into memory at once
# --img: a mosaic's canvas has twice this side, and OpenCV warps below 32768.
MAX_IMAGE_SIZE = 16384
IMAGE_SUFFIXES = (
    ".avif", ".bmp", ".gif", ".heic", ".heif", ".jfif", ".jpe", ".jpeg", ".jpg", ".mpo", ".png",
    ".tif", ".tiff", ".webp",
)  # fmt: skip
