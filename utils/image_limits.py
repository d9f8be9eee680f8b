"""Limits on the size of an image."""

MIN_SIDE = 10
MAX_SIDE = 1 << 20  # OpenCV's limits: this side, and the number of pixels below
MOST_PIXELS = 1 << 30
MAX_PIXELS = 200_000_000  # default of the flag: 600 MB decoded
MAX_IMAGE_BYTES = 1 << 30  # image files are read into memory whole
# --img: the canvas of a mosaic is twice as large, and OpenCV warps only below 32768.
MAX_IMAGE_SIZE = 16384
IMAGE_SUFFIXES = (
    ".avif", ".bmp", ".gif", ".heic", ".heif", ".jfif", ".jpe", ".jpeg", ".jpg", ".mpo", ".png",
    ".tif", ".tiff", ".webp",
)  # fmt: skip
