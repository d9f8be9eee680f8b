"""Finding images in folders and by their names in annotations, and folders named for splits."""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from duet.utils.data.sources.formats.format import AnnotatedFolder, Splits
from duet.utils.data.sources.image_sources import search_files
from duet.utils.errors import DatasetError, brief
from duet.utils.files.regular import encoding_fault, read_text
from duet.utils.image_limits import IMAGE_SUFFIXES
from duet.utils.text import count

SPLIT_NAMES = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
MAX_FILES = 100  # per suffix and folder; more are one file per image
_SPLIT_OF = {name: split for split, names in SPLIT_NAMES.items() for name in names}
MAX_LIST_BYTES = 1 << 28  # millions of images
_FLAGS = ("-1", "0", "1")  # VOC's second column: whether a class is in the image


def split_of(name: str) -> str:
    """Return "train", "val" or "test" for a name such as "Valid" or "train2017"; else ""."""
    return _SPLIT_OF.get(name.lower().rstrip("0123456789"), "")


def split_in(name: str) -> str:
    """Return the split that a word of a file's name is: "val" for "validation-boxes"; else ""."""
    return next(filter(None, map(split_of, re.split(r"[-_. ]", name))), "")


def split_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if split_of(path.name) and path.is_dir())


def find_files(
    path: Path,
    format_name: str,
    suffix: str,
    accepts: Callable[[Path], bool],
    nearby: Collection[str] = (),
) -> Splits:
    """Find annotation files that each hold all images of a split: `path`, or those in a folder.

    A file that `path` names belongs to no split, but the images of my-test.json may lie in test/.

    Args:
        suffix: suffix of the files, such as ".json".
        nearby: subfolders in which the files may lie too.

    DatasetError: two files are for one split.
    """
    found: dict[str, list[AnnotatedFolder]] = {}
    for file in _files_in(path, suffix, nearby) if path.is_dir() else [path]:
        if not (file.suffix.lower() == suffix and file.is_file() and accepts(file)):
            continue
        folders = file.relative_to(path).parts[:-1]
        name = split_in(file.stem) or next(filter(None, map(split_of, folders)), "")
        split = "" if file == path else name
        if split in found:
            of_split = f", for {split!r}" if split else ""
            raise DatasetError(
                f"{found[split][0].annotations} and {file} are both in the format {format_name}"
                f"{of_split}; name one of them, or move one away"
            )
        found[split] = [AnnotatedFolder(format_name, file, _images_near(file, name, nearby))]
    return found


def _files_in(folder: Path, suffix: str, nearby: Collection[str]) -> Iterator[Path]:
    for place in (folder, *split_folders(folder)):
        for part in (place, *(place / name for name in nearby)):
            files = list(islice(part.glob(f"*{suffix}"), MAX_FILES + 1))
            if len(files) <= MAX_FILES:
                yield from sorted(files)


def _images_near(file: Path, split: str, nearby: Collection[str]) -> Path:
    """Return the folder of the images of an annotation file: the first below that holds some.

    Tried are a folder named for the split, the same in `images/`, `images/`, and the file's own
    folder; and these one folder up if the file lies in one of `nearby`.
    """
    roots = [file.parent, file.parent.parent] if file.parent.name in nearby else [file.parent]
    own = [
        root / top / name
        for name in SPLIT_NAMES.get(split, ())
        for top in ("", "images")
        for root in roots
    ]
    places = [*own, *(root / "images" for root in roots), *roots]
    return next((place for place in places if any(search_files(place))), roots[-1])


class FileNames:
    """The files with some suffixes in a folder and its subfolders; a name may lack its suffix.

    Folders in a name must not contradict the file's: the labels of an absent image are
    never given to another one.

    alias: returns another name for a file.
    """

    def __init__(
        self,
        folder: Path,
        suffixes: Collection[str] = IMAGE_SUFFIXES,
        alias: Callable[[str], str] = str,
    ) -> None:
        self.folder = folder
        self.paths: list[Path] = []  # sorted
        self.by_stem: dict[str, Path] = {}  # keys: paths in the folder without suffix, sorted
        self._by_base: defaultdict[str, list[Path]] = defaultdict(list)
        self._folders_of: dict[Path, tuple[str, ...]] = {}
        for inner in sorted(_files(folder, suffixes), key=lambda name: name.split("/")):
            path = folder / inner
            self.paths.append(path)
            self.by_stem.setdefault(os.path.splitext(inner)[0], path)
            self._folders_of[path] = parts_of(inner)[:-1]
            for name in {path.name, path.stem, alias(path.name)}:
                self._by_base[name].append(path)
        self._folders = set(self._folders_of.values())

    def find(self, names: Iterable[str]) -> tuple[Path, str]:
        """Return the file of an image, and ""; or an expected or ambiguous path, and the fault.

        names: possible names, most likely first.
        """
        trouble: tuple[Path, str] | None = None
        for name in names:
            files = self.fitting(name)
            if len(files) == 1:
                return files[0], ""
            if files:
                trouble = trouble or (files[0], ambiguous(files))
        return trouble or (self.folder.joinpath(*parts_of(name)), "")

    def fitting(self, name: str) -> Sequence[Path]:
        """Return the file of this path; else those that share most folders, from the end on.

        Without a common folder a name stands for its only file, unless its own folder is there.
        """
        *inner, base = parts_of(name) or ("",)
        named, files = tuple(inner), self._by_base.get(base, [])
        files = [file for file in files if file.name == base] or files
        folders = {file: self._folders_of[file] for file in files}
        if same := [file for file in files if folders[file] == named]:
            return same
        alike = [
            file for file in files if all(map(str.__eq__, reversed(folders[file]), reversed(named)))
        ]
        shared = {file: min(len(folders[file]), len(named)) for file in alike}
        most = max(shared.values(), default=0)
        if most or not named:
            return [file for file in alike if shared[file] == most]
        return alike if len(files) == 1 and named not in self._folders else []


def parts_of(name: str) -> tuple[str, ...]:
    """Return the folders and the base of a name, of Windows too; it never leads out of a folder."""
    return tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", ".", ".."))


def _files(folder: Path, suffixes: Collection[str]) -> Iterator[str]:
    """Yield the files in a folder by their path in it, in no order; none in a hidden folder."""
    start = len(os.path.join(folder, ""))
    for path in search_files(folder, suffixes):
        if not any(inner.startswith(".") for inner in path[start:].split("/")[:-1]):
            yield path[start:]


def ambiguous(files: Sequence[Path]) -> str:
    """Return why an image may be any of several files."""
    return (
        f"{count(len(files), 'file')} have its name, {files[0]} and {files[1]} among them; "
        "rename one, or put them into folders as the labelling tool has them"
    )


def listed_images(image_list: Path, images: FileNames) -> list[Path]:
    """Return the images of a list of names, with or without suffix; not the column behind them.

    DatasetError: the list cannot be read, or a line may be several images.
    """
    try:
        lines = read_text(image_list, MAX_LIST_BYTES).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else encoding_fault(error)
        raise DatasetError(f"{image_list}: a list of images is needed: {reason}") from error
    listed = []
    for name in (_name_in(line.strip(), images) for line in lines if line.strip()):
        path, trouble = images.find([name])
        if trouble:
            raise DatasetError(f"{image_list}: {brief(name)}: {trouble}")
        listed.append(path)
    return listed


def _name_in(line: str, images: FileNames) -> str:
    """Return the name on a line: all of it if there is such an image, as "cat 1"."""
    first, *last = line.rsplit(maxsplit=1)
    name = first if last and last[0] in _FLAGS else line
    if name[0] == name[-1] == '"' and len(name) > 2:  # CVAT's, of a name with blanks
        name = name[1:-1]
    stem, suffix = os.path.splitext(name)
    known = (line, name, stem if suffix.lower() in IMAGE_SUFFIXES else name)  # not of "v1.2"
    return next(filter(images.fitting, known), name)


def listed_in(image_list: Path | None, images: FileNames | Path) -> Callable[[Path], bool]:
    """Return whether a list names an image of a folder; without a list all are named."""
    if image_list is None:
        return lambda path: True
    images = FileNames(images) if isinstance(images, Path) else images
    listed = set(listed_images(image_list, images))
    return lambda path: path in listed or path.parent / path.stem in listed
