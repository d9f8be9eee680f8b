"""Folders, list files and record files -> images that can be scanned: bytes, size and labels.

Wings register further kinds of files that hold many images.
"""

import os
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from duet.utils.data.image.header import CheckedFile, check_file
from duet.utils.data.sources.label_file import (
    Labels,
    label_file_of,
    overlooked_labels,
    parse_labels,
    read_label_bytes,
    require_drawable,
)
from duet.utils.data.sources.remarks import Remark, Remarks
from duet.utils.errors import DatasetError, brief
from duet.utils.files.array_cache import state_of_files
from duet.utils.files.regular import encoding_fault, read_text_bytes
from duet.utils.image_limits import IMAGE_SUFFIXES
from duet.utils.optional import require_wing

# Suffix of files that hold many images -> the wing that reads them, a module with RECORDS.
RECORD_WINGS = {".ffr": "duet.utils.data.records.record_images"}
MAX_LIST_BYTES = 1 << 28  # millions of images
OTHER_SUFFIXES = (".dng", ".jp2", ".pbm", ".pfm", ".pgm", ".ppm", ".tga")  # are not decoded
MOST_PROBED = 100  # names of a list, spread over it, that are looked for at each start
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


class RecordPlace(NamedTuple):
    path: Path
    number: int  # from 0
    offset: int  # bytes from the start of the file
    length: int
    checksum: int  # CRC-32


@dataclass(frozen=True, slots=True)
class ImageSource(ABC):
    """An image that can be scanned, and its labels."""

    path: Path  # the file; for a record, its file followed by its name
    place: RecordPlace | None = field(default=None, kw_only=True)  # None for a file of its own

    @property
    @abstractmethod
    def labels_at(self) -> str:
        """The existing or expected place of its labels, for messages."""

    @abstractmethod
    def state(self, now_ns: int) -> bytes | None:
        """Return a state that changes with its size or labels; None if unsure."""

    def remarks(self, num_objects: int) -> list[Remark]:
        """Return remarks on its labels if that many objects are used."""
        return []

    def check(self, max_pixels: int) -> CheckedFile:
        """Return the size in pixels as decoded, or raise BrokenImageError."""
        return check_file(self.path, max_pixels)

    def label_bytes(self) -> bytes | None:
        """Return its label file, None if it lacks one; b"" if its labels are no such file."""
        return b""

    def read_labels(self, num_classes: int, size: tuple[int, int]) -> Labels:
        labels = parse_labels(self.label_bytes(), num_classes)
        if labels.polygons_norm is not None:
            require_drawable(labels.polygons_norm.moved(size[::-1]), size)
        return labels


class ImageFile(ImageSource):
    """An image in a file of its own, with a label file in YOLO's format."""

    __slots__ = ()

    @property
    def labels_at(self) -> str:
        return label_file_of(self.path.as_posix())

    def state(self, now_ns: int) -> bytes | None:
        labels = self.labels_at
        other = "" if os.path.exists(labels) else overlooked_labels(self.path.as_posix())
        return state_of_files(tuple(filter(None, (str(self.path), labels, other))), now_ns)

    def remarks(self, num_objects: int) -> list[Remark]:
        if num_objects or not (overlooked := overlooked_labels(self.path.as_posix())):
            return []
        labels = self.labels_at
        text = f"{overlooked}: is not read; call it {labels}"
        if unicodedata.normalize("NFC", overlooked) == unicodedata.normalize("NFC", labels):
            text += ", which is in another Unicode normalization form (NFC, NFD)"
        return [Remark("near_label", text)]

    def label_bytes(self) -> bytes | None:
        return read_label_bytes(Path(self.labels_at))


class Records(NamedTuple):
    """How a kind of file with many images is read."""

    images: Callable[[Path], Sequence[ImageSource]]
    """The images of a file, each with its place; DatasetError if the file is damaged."""
    read: Callable[[RecordPlace], np.ndarray]
    """The bytes of an image, (N,) uint8; DatasetError if they are damaged."""


def records_of(path: Path) -> Records:
    return require_wing((RECORD_WINGS[path.suffix],), str(path)).RECORDS


def list_images(
    entries: Sequence[Path], root: Path | None = None, remarks: Remarks | None = None
) -> list[ImageSource]:
    """Return the images of folders (sorted, with subfolders), of list files and of record files.

    Lines of a list start where `start_of` says. `splits.scan_samples` finds out whether a file can
    be read. A file that is an image stands for itself.

    Args:
        root: the dataset's folder.
        remarks: collects what is left out.

    DatasetError: an entry cannot be read, or holds no image, or images beside record files.
    """
    return [image for entry in entries for image in _images_of(entry, root, remarks)]


def _images_of(entry: Path, root: Path | None, remarks: Remarks | None) -> Sequence[ImageSource]:
    if entry.suffix.lower() in IMAGE_SUFFIXES and entry.is_file():
        return [ImageFile(entry)]
    if record_files := _record_files(entry):
        if image := next(search_files(entry), None):
            raise DatasetError(
                f"{entry} holds record files and also images, {image} among them; move one of the "
                "two away, or name the record files one by one"
            )
        images = [x for path in record_files for x in records_of(path).images(path)]
    else:
        paths = sorted_images(entry, remarks) if entry.is_dir() else _read_list(entry, root)
        images = list(map(ImageFile, paths))
    if not images:
        raise DatasetError(no_images_text(entry))
    return images


def has_images(entry: Path) -> bool:
    """Return whether an entry is a file, or a folder with an image or a record file."""
    return entry.is_file() or any(search_files(entry)) or bool(_record_files(entry))


def no_images_text(entry: Path) -> str:
    if entry.is_file():
        return f"{entry} has no image; a list has the path of one on each line"
    if not entry.is_dir():
        return f"{entry} is no folder and no file; name a folder of images, or a list of them"
    records = " or ".join(RECORD_WINGS)
    kinds = f"images there ({' '.join(IMAGE_SUFFIXES)}), or record files ({records})"
    return f"{entry} holds no image; put {kinds}"


def _record_files(entry: Path) -> list[Path]:
    """Return the record files that a dataset YAML's entry names: one, or a folder's by name."""
    files = entry.glob("*") if entry.is_dir() else [entry]
    return sorted(path for path in files if path.suffix in RECORD_WINGS and path.is_file())


def sorted_images(folder: Path, remarks: Remarks | None = None) -> list[Path]:
    """Return the images in a folder, in the order of their paths part by part.

    Kinds that are not decoded are there too: the scan names them.
    """
    # Strings: comparing Paths takes ten times as long.
    suffixes = *IMAGE_SUFFIXES, *OTHER_SUFFIXES
    found = sorted(search_files(folder, suffixes, remarks), key=lambda x: x.replace("/", "\0"))
    return list(map(Path, found))


def is_of_windows(path: str) -> bool:
    """Return whether a path begins with a drive: D:\\images or D:/images."""
    return _DRIVE.match(path) is not None


class Start(NamedTuple):
    folder: Path
    prefix: str = ""  # left out at the beginning of each name

    def path(self, name: str) -> Path:
        """Return the path of a name, with / for Windows' \\ if there is no file of that name."""
        path = self.folder / name.removeprefix(self.prefix)
        if "\\" in name and not os.path.exists(path):
            return self.folder / name.replace("\\", "/").removeprefix(self.prefix)
        return path


def start_of(file: Path, names: Sequence[str], root: Path | None = None) -> Start:
    """Return the start by which most of some names in a file exist; the first of equals.

    A relative name starts at the file, at the dataset's folder or, as Darknet's do, at the folder
    around `data`, even if CVAT has written the file into another; or at the working folder.
    Of a Windows path with a drive, leading folders are left out.
    """
    folders = _folders_tried(file, root)
    probed = _probed(names)
    starts = [*map(Start, folders), Start(file.parent, "data/")]
    if drive := next(filter(is_of_windows, probed), ""):
        parts = drive.replace("\\", "/").split("/")[:MOST_PROBED]
        prefixes = ["/".join([*parts[:end], ""]) for end in range(1, len(parts))]
        starts += [Start(folder, prefix) for prefix in prefixes for folder in folders]
    return max(starts, key=lambda start: _num_found(start, probed))  # the first of equals


def _folders_tried(file: Path, root: Path | None) -> list[Path]:
    own = [file.parent, *([] if root is None else [root]), file.parent.parent, Path()]
    return list({os.path.realpath(folder): folder for folder in reversed(own)}.values())[::-1]


def _probed(names: Sequence[str]) -> Sequence[str]:
    """Return some of many names, spread over them."""
    return names[:: max(1, len(names) // MOST_PROBED)][:MOST_PROBED]


def _num_found(start: Start, names: Sequence[str]) -> int:
    return sum(os.path.exists(start.path(name)) for name in names)


def _read_list(path: Path, root: Path | None) -> list[Path]:
    """Return the images on the lines of a list.

    It is in UTF-8 or, with its mark, UTF-16; or names files as they are, or in GB18030, Chinese
    Windows' encoding.
    """
    try:
        lines = read_text_bytes(path, MAX_LIST_BYTES).splitlines()
    except OSError as error:
        raise DatasetError(
            f"{path}: a folder of images, a text file that lists them, or a record file is "
            f"needed: {error.strerror}"
        ) from error
    encoded = [line for line in map(bytes.strip, lines) if line]
    if not encoded:
        return []
    fault, spellings = None, [list(map(os.fsdecode, encoded))]
    try:
        b"\n".join(encoded).decode()
    except UnicodeDecodeError as error:
        fault = error
        spellings.append([line.decode("gb18030", "surrogateescape") for line in encoded])
    ways = [(start_of(path, names, root), names) for names in spellings]
    start, names = max(ways, key=lambda way: _num_found(way[0], _probed(way[1])))
    if _num_found(start, _probed(names)):
        return list(map(start.path, names))
    if fault is not None:
        raise DatasetError(f"{path}: {encoding_fault(fault)}") from fault
    windows = "; it is a path of Windows" * is_of_windows(names[0])
    raise DatasetError(
        f"{path}: none of its images was found, such as {brief(names[0])}{windows}; folders tried: "
        f"{', '.join(map(os.path.realpath, _folders_tried(path, root)))}; correct the lines, or "
        "give the folder in which they start as 'path' in the dataset YAML"
    )


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link to one; a link to itself is none."""
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()


def search_files(
    folder: Path, suffixes: Collection[str] = IMAGE_SUFFIXES, remarks: Remarks | None = None
) -> Iterator[str]:
    """Yield the images in a folder and its subfolders, in no order, with "/" on Windows too.

    Linked folders are read after all others, each once, except those that contain the folder.
    Files of macOS, "._a.jpg" and __MACOSX, are left out.

    Args:
        suffixes: of other files to search for.
        remarks: collects what is left out.
    """
    remarks = Remarks() if remarks is None else remarks
    waiting, linked = [str(folder)], list[str]()
    seen: set[tuple[int, int]] = set()
    while waiting or linked:
        linked.sort(reverse=True)  # the order decides which of two links to a folder is read
        is_link = not waiting
        place = linked.pop() if is_link else waiting.pop()
        if is_link and Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(place)):
            continue
        try:
            status = os.stat(place)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(place) as entries:
                for entry in entries:
                    is_wanted = os.path.splitext(entry.name)[1].lower() in suffixes
                    if entry.name == "__MACOSX" or (is_wanted and entry.name.startswith("._")):
                        remarks.add("of_macos", entry.path)
                        continue
                    if is_wanted:
                        yield entry.path.replace(os.sep, "/")
                    if is_folder(entry):
                        (linked if entry.is_symlink() else waiting).append(entry.path)
                    elif entry.is_symlink() and not is_wanted and not os.path.exists(entry.path):
                        remarks.add("dead_link", entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError:
            remarks.add("unread_folder", place)
