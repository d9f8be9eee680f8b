"""Resolve --source: files, a folder, a pattern, a list, a camera or a URL.

No source is opened before its turn.
"""

import logging
import os
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import cv2

from duet.utils.data.sources.image_sources import start_of
from duet.utils.detect.media.image_file import ImageFile
from duet.utils.detect.media.live import (
    SCHEMES,
    LiveSource,
    open_camera,
    open_stream,
    shown_url,
)
from duet.utils.detect.media.source import Source
from duet.utils.detect.media.video import VideoFile
from duet.utils.errors import UserError, brief
from duet.utils.files.regular import read_text_bytes
from duet.utils.geometry.tiling import Tiling
from duet.utils.image_limits import IMAGE_SUFFIXES
from duet.utils.optional import import_optional
from duet.utils.text import count

VIDEO_SUFFIXES = (
    ".3gp", ".asf", ".avi", ".flv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg",
    ".mts", ".mxf", ".ogv", ".ts", ".webm", ".wmv",
)  # fmt: skip
_KNOWN = frozenset((*IMAGE_SUFFIXES, *VIDEO_SUFFIXES))
ENDINGS = f"{' '.join(IMAGE_SUFFIXES)} for images, {' '.join(VIDEO_SUFFIXES)} for videos"
ACCEPTED = f"accepted: a URL ({' '.join(SCHEMES)}) or a camera number"
_MAX_LIST_BYTES = 1 << 26
_CAMERA = re.compile(r"[0-9]{1,3}")
_DIGITS = re.compile(r"([0-9]+)")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

log = logging.getLogger("detect")


def find_sources(argument: str, max_pixels: int, video_stride: int = 1) -> Sequence[Source]:
    """Return the sources named by --source, in natural order: image2 before image10.

    Images and frames of over max_pixels are not decoded. UserError says what is accepted.
    """
    getattr(cv2.utils, "logging", cv2).setLogLevel(0)  # in cv2 until 4.12; ours name the source
    if source := _find_live(argument, max_pixels, video_stride):
        return [source]
    folder, paths = "", [argument]
    if os.path.isdir(argument):
        folder, paths = argument, _natural(os.listdir(argument))
    elif not os.path.exists(argument):
        paths = _natural(_matching(argument))
    elif _suffix(argument) == ".streams":
        lines = _read_list(argument)
        live = {line: _find_live(line, max_pixels, video_stride) for line in lines}
        if other := next((line for line, source in live.items() if source is None), ""):
            raise UserError(f"--source {argument}: {brief(other)}; {ACCEPTED} on each line")
        return [source for source in live.values() if source]
    elif _suffix(argument) == ".txt":
        names = _read_list(argument)
        paths = list(map(str, map(start_of(Path(argument), names).path, names)))
    chosen = _without_others(argument, paths)
    if any(_suffix(path) in VIDEO_SUFFIXES for path in chosen):
        import_optional("av", "a video")  # if it is absent, the error comes before 1,000 images
    once = dict.fromkeys(Path(folder, path) for path in chosen)  # a list may repeat a file
    return [file_source(path, max_pixels, video_stride) for path in once]


def are_several(sources: Sequence[Source], tiling: Tiling | None) -> bool:
    """Return whether batches can be computed concurrently: not tiles, nor a single image."""
    is_one_image = len(sources) == 1 and sources[0].kind == "image"
    return tiling is None and not is_one_image


def file_source(path: Path, max_pixels: int, video_stride: int = 1) -> Source:
    if _suffix(path.name) in VIDEO_SUFFIXES:
        return VideoFile(path, max_pixels, video_stride)
    return ImageFile(path, max_pixels)


def _find_live(argument: str, max_pixels: int, stride: int) -> LiveSource | None:
    name = argument
    if _CAMERA.fullmatch(argument):
        name, opened = f"camera {argument}", partial(open_camera, int(argument), max_pixels)
    elif url := _URL.match(argument):
        name, opened = shown_url(argument), partial(open_stream, argument, max_pixels)
        if url[1].lower() not in SCHEMES:
            raise UserError(f"--source {name:.400}: {url[1]:.80} is not supported; {ACCEPTED}")
        import_optional("av", "a stream")
    else:
        return None
    return LiveSource(name, opened, stride)


def _read_list(argument: str) -> list[str]:
    try:
        content = read_text_bytes(argument, _MAX_LIST_BYTES)
    except OSError as error:
        raise UserError(f"--source {argument}: {error.strerror}") from error
    lines = [line.strip() for line in content.removeprefix(b"\xef\xbb\xbf").splitlines()]
    found = [os.fsdecode(line) for line in lines if line]
    if not found:
        raise UserError(f"--source {argument}: the list is empty; write one path or URL per line")
    return found


def _matching(argument: str) -> list[str]:
    """Return the files matching a pattern; `**` does not follow links, which may form a circle.

    An existing folder whose name looks like a pattern, such as "cats [1]", is that folder.
    """
    folder, parts = Path(), list(Path(argument).parts)
    while parts and (os.path.isdir(folder / parts[0]) or not set(parts[0]) & set("*?[")):
        folder /= parts.pop(0)
    if not parts:
        raise UserError(f"--source {argument}: no such file or folder")
    if parts[-1] == "**":
        parts.append("*")
    try:
        return [str(path) for path in folder.glob("/".join(parts))]
    except (ValueError, OSError) as error:
        text = f"{error!s:.200}; accepted: a pattern such as 'images/*.jpg'"
        raise UserError(f"--source {argument}: {text}") from error


def _without_others(argument: str, paths: Sequence[str]) -> Sequence[str]:
    """Return the images and videos, by their names; log the number of others."""
    # macOS writes "._a.jpg" beside a.jpg, and __MACOSX into archives.
    own = (x for x in paths if not os.path.basename(x).startswith("._"))
    chosen = [x for x in own if _suffix(x) in _KNOWN and "__MACOSX" not in x.split(os.sep)]
    if not chosen:
        inside = [os.path.join(argument, x) for x in paths] if os.path.isdir(argument) else []
        has_folders = any(map(os.path.isdir, inside))
        inner = f"; '{argument}/**/*' also looks into its folders" if has_folders else ""
        raise UserError(f"--source {argument}: no images or videos{inner}; accepted: {ENDINGS}")
    if others := len(paths) - len(chosen):
        log.info("%s: %s ignored, not an image or video", argument, count(others, "other name"))
    return chosen


def _natural(names: Iterable[str]) -> list[str]:
    def in_parts(name: str) -> list[str | int]:
        parts = enumerate(_DIGITS.split(name))
        return [int(part) if index % 2 else part for index, part in parts]

    return sorted(names, key=lambda name: (in_parts(name), name))


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()
