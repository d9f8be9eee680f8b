"""COCO's instances JSON as a dataset: as COCO publishes it, as Roboflow and CVAT export it."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from duet.utils.data.sources.formats.coco_file import (
    SECTIONS,
    BrokenInstancesError,
    Category,
    Instances,
    read_instances,
)
from duet.utils.data.sources.formats.format import (
    AnnotatedFolder,
    FileNotes,
    Format,
    ImageLabels,
    Splits,
    read_head,
)
from duet.utils.data.sources.formats.names import (
    SPLIT_NAMES,
    listed_in,
    parts_of,
    split_folders,
    split_of,
)
from duet.utils.errors import brief
from duet.utils.files.json_files import parse_json

NAME = "COCO JSON"
ROBOFLOW = "_annotations.coco.json"
UNDIVIDED = "default"  # CVAT's name instead of a split: instances_default.json
_SECTION = re.compile(rb'"(?:%s)"\s*:\s*\[' % "|".join(SECTIONS).encode())
_NAME = re.compile(rb'"file_name"\s*:\s*("(?:[^"\\]|\\.)*")')
_STARTS = (1 << 16, 1 << 26)  # bytes; the second where an `info` of megabytes comes first
_MOST_PROBED = 16  # images per file, to find their folder
_MOST_FOLDERS = 16  # per file name


def accepts(path: Path) -> bool:
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    starts = (read_head(path, size).lstrip() for size in _STARTS)
    return any(start.startswith(b"{") and _SECTION.search(start) for start in starts)


def find(path: Path) -> Splits:
    """Return the splits of a file, or of a folder as Roboflow, COCO or CVAT lay it out.

    The images of a file lie beside it, or where its names lead.
    """
    if not path.is_dir():
        if not accepts(path):
            return {}
        return {"": [AnnotatedFolder(NAME, path, _image_folder(path) or path.parent)]}
    found: defaultdict[str, list[AnnotatedFolder]] = defaultdict(list)
    for folder in (*split_folders(path), path):
        if accepts(file := folder / ROBOFLOW):
            split = "" if folder == path else split_of(folder.name)
            found[split].append(AnnotatedFolder(NAME, file, folder))
    if found:
        return found
    for file in sorted([*path.glob("annotations/*.json"), *path.glob("*.json")]):
        tag = _tag_of(file)
        is_named = split_of(tag) or tag == UNDIVIDED
        if is_named and accepts(file) and (images := _image_folder(file)):
            found[split_of(tag)].append(AnnotatedFolder(NAME, file, images))
    return found


def _tag_of(file: Path) -> str:
    """Return the image folder implied by a file name: "train2017" for instances_train2017.json."""
    return file.stem.removeprefix("instances_")


def _image_folder(file: Path) -> Path | None:
    """Return the first folder in which most of a file's first images are; None without any."""
    matches = islice(_NAME.finditer(read_head(file, _STARTS[1])), _MOST_PROBED)
    try:
        names = [parts_of(parse_json(match[1])) for match in matches]
    except ValueError:  # reported by its reader
        return None
    tag = _tag_of(file)
    root = file.parent.parent if file.parent.name == "annotations" else file.parent
    tags = dict.fromkeys([tag, tag.rstrip("0123456789"), *SPLIT_NAMES.get(split_of(tag), ())])
    own = [root / top / name for name in tags for top in ("", "images")]
    inner = [place / "images" for place in (*own, root, file.parent)]
    folders = [*own, *inner, root, file.parent]
    counts = [_best_skip(folder, names)[1] for folder in folders]
    return folders[counts.index(max(counts))] if any(counts) else None


def _best_skip(folder: Path, names: Sequence[tuple[str, ...]]) -> tuple[int, int]:
    """Return how many leading folders of the names to leave out, and how many files that finds."""
    deepest = min(max((len(parts) for parts in names), default=1), _MOST_FOLDERS)
    counts = [
        sum(os.path.exists(_place(folder, parts, skip)) for parts in names)
        for skip in range(max(deepest, 1))
    ]
    return counts.index(max(counts)), max(counts)


def _place(folder: Path, parts: tuple[str, ...], skip: int) -> Path:
    return folder.joinpath(*parts[min(skip, len(parts) - 1) :])


def read(folder: AnnotatedFolder, notes: FileNotes) -> Iterator[ImageLabels]:
    """Read the annotations of a folder; BrokenInstancesError when the file is broken."""
    instances = read_instances(folder.annotations)
    paths = list(_paths_of(folder.images, [image.name for image in instances.images]))
    class_of = _class_names(instances, notes)
    notes.class_names = list(dict.fromkeys(class_of.values()))
    if instances.num_without_image:
        notes.left_out["objects of unknown images"] = instances.num_without_image
    is_listed = listed_in(folder.image_list, folder.images)
    for path, image, objects in zip(paths, instances.images, instances.objects, strict=True):
        if not is_listed(path):
            continue
        labels = ImageLabels(path, image.size, brief(image.name))
        for one in objects:
            try:
                if one.is_crowd():
                    labels.left_out.append("crowds")
                    continue
                if one.category_id not in class_of:
                    raise one.unusable(f"'categories' has no id {one.category_id}")
                left, top, width, height = one.box_ltwh()
                outline = one.segmentation().outline()
                box = left, top, left + width, top + height
                labels.add(class_of[one.category_id], box, outline)
            except BrokenInstancesError as error:
                labels.refuse(str(error))
        yield labels


def _paths_of(folder: Path, file_names: Sequence[str]) -> Iterator[Path]:
    """Yield the path of each image; raise BrokenInstancesError where one has no name."""
    names = [parts_of(name) for name in file_names]
    step = max(1, len(names) // _MOST_PROBED)
    skip, _ = _best_skip(folder, names[::step][:_MOST_PROBED])
    for name, parts in zip(file_names, names, strict=True):
        if not parts:
            raise BrokenInstancesError(f"an image is called {brief(name)}; no file can be")
        yield _place(folder, parts, skip)


def _class_names(instances: Instances, notes: FileNotes) -> dict[int, str]:
    categories = sorted(instances.categories)
    if _has_dummy(instances, categories):
        del categories[0]
    counts = Counter(category.name for category in categories)
    if repeated := [name for name, number in counts.items() if number > 1]:
        text = f"categories of one name are taken for one class: {brief(repeated)}"
        notes.warnings.append(text)
    return {category.id: category.name for category in categories}


def _has_dummy(instances: Instances, categories: Sequence[Category]) -> bool:
    """Whether category 0 is Roboflow's dummy: the supercategory of all others."""
    if len(categories) < 2 or categories[0].id != 0:
        return False
    first, *others = categories
    is_used = any(one.category_id == 0 for objects in instances.objects for one in objects)
    return not is_used and all(other.supercategory == first.name for other in others)


COCO = Format(NAME, accepts, find, read)
