"""Where the parts of a dataset lie: splits by their usual names, images near a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from pathlib import Path

from utils.data.sources.formats.format import AnnotatedFolder, Splits
from utils.data.sources.formats.names import has_image
from utils.errors import DatasetError

SPLIT_NAMES = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
MAX_FILES = 100  # of a suffix in a folder; where there are more, they are of one image each
_SPLIT_OF = {name: split for split, names in SPLIT_NAMES.items() for name in names}


def split_of(name: str) -> str:
    """Return "train", "val" or "test" for a name such as "Valid" or "train2017"; else ""."""
    return _SPLIT_OF.get(name.lower().rstrip("0123456789"), "")


def split_in(name: str) -> str:
    """Return the split that a word of a file's name is: "val" for "validation-boxes"; else ""."""
    return next(filter(None, map(split_of, re.split(r"[-_. ]", name))), "")


def split_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder that are named for a split, sorted."""
    return sorted(path for path in folder.iterdir() if split_of(path.name) and path.is_dir())


def find_files(
    path: Path,
    format_name: str,
    suffix: str,
    accepts: Callable[[Path], bool],
    nearby: Collection[str] = (),
) -> Splits:
    """Find annotation files that each hold all images of a split.

    A file that `path` names belongs to no split, but the images of my-test.json may lie in test/.

    Args:
        path: one such file; or a folder that holds them, or holds folders named for splits.
        suffix: of the files: ".json".
        accepts: says whether a file is of the format.
        nearby: names of folders in those in which the files may lie too.

    Raises:
        DatasetError: two files are for one split.
    """
    places = _files_in(path, suffix, nearby) if path.is_dir() else iter([path])
    found: dict[str, list[AnnotatedFolder]] = {}
    for file in places:
        if not (file.suffix.lower() == suffix and file.is_file() and accepts(file)):
            continue
        name = _split_of_file(file, path)
        split = "" if file == path else name
        if split in found:
            raise DatasetError(
                f"{found[split][0].annotations} and {file} are both in the format {format_name}"
                f"{f', for {split!r}' * bool(split)}; name one of them, or move one away"
            )
        found[split] = [AnnotatedFolder(format_name, file, _images_near(file, name, nearby))]
    return found


def _split_of_file(file: Path, folder: Path) -> str:
    """Return the split that the name of a file says, or a folder on the way to it."""
    on_the_way = file.relative_to(folder).parts[:-1]
    return split_in(file.stem) or next(filter(None, map(split_of, on_the_way)), "")


def _files_in(folder: Path, suffix: str, nearby: Collection[str]) -> Iterator[Path]:
    for place in (folder, *split_folders(folder)):
        for part in (place, *(place / name for name in nearby)):
            files = list(islice(part.glob(f"*{suffix}"), MAX_FILES + 1))
            if len(files) <= MAX_FILES:
                yield from sorted(files)


def _images_near(file: Path, split: str, nearby: Collection[str]) -> Path:
    """Return the folder of the images of an annotation file: the first below that holds some.

    A folder named for the split, the same in `images/`, `images/`, and the folder of the file; or
    these one folder up, where the file lies in one of `nearby`.
    """
    roots = [file.parent, file.parent.parent] if file.parent.name in nearby else [file.parent]
    own = [
        root / top / name
        for name in SPLIT_NAMES.get(split, ())
        for top in ("", "images")
        for root in roots
    ]
    places = [*own, *(root / "images" for root in roots), *roots]
    return next(filter(has_image, places), roots[-1])
