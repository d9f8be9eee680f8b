"""A dataset -> everything that the check finds, before reporting."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from duet.utils.data.check.inspection import KINDS, CheckedImage, Finding, count_objects, inspect
from duet.utils.data.image.fingerprint import duplicates, near_duplicates
from duet.utils.data.sources.class_folders import ClassImage, similar_names
from duet.utils.data.sources.dataset_yaml import SPLITS, DatasetSpec
from duet.utils.data.sources.drawn_split import group_copies
from duet.utils.data.sources.image_sources import ImageFile, ImageSource
from duet.utils.data.sources.label_file import has_rows, label_file_of
from duet.utils.data.sources.remarks import TITLES, Remarks
from duet.utils.data.sources.splits import images_of
from duet.utils.errors import brief
from duet.utils.image_limits import IMAGE_SUFFIXES, MAX_PIXELS
from duet.utils.progress import Progress
from duet.utils.text import count

MOST_THREADS = 8  # each has an image of up to 150 MB


@dataclass(frozen=True)
class Check:
    dataset: DatasetSpec
    splits: Sequence[str]  # splits with images
    images: Sequence[CheckedImage] = field(repr=False)  # all splits, concatenated
    findings: Sequence[Finding]  # by kind in the order of KINDS, then by image

    def of_kind(self, kind: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind == kind]

    @property
    def has_problems(self) -> bool:
        """Whether anything must be corrected, or training leaves out an image."""
        left_out = any(not image.is_used for image in self.images)
        return left_out or any(KINDS[found.kind].is_problem for found in self.findings)


def check_dataset(dataset: DatasetSpec, max_pixels: int = MAX_PIXELS) -> Check:
    """Look at every image and label of a dataset's splits, in linear time.

    DatasetError: a split cannot be listed at all.
    """
    is_drawn = dataset.train_part is not None
    splits = [x for x in SPLITS if getattr(dataset, x) or (is_drawn and x == "val")]
    remarks = Remarks()
    listed = [
        (split, image) for split in splits for image in images_of(dataset, split, remarks=remarks)
    ]
    images, faults = _inspect_all(dataset, listed, max_pixels)
    copies = list(_find_copies(images))
    findings = [
        *(
            Finding("skipped", "", remarks.examples[kind], f"{TITLES.get(kind, kind)}: {number:,}")
            for kind, number in remarks.numbers.items()
        ),
        *faults,
        *copies,
        *_find_two_classes(copies, images, dataset.names_in_labels),
        *_find_unpaired([source for _, source in listed]),
        *_find_in_classes(images, dataset),
    ]
    order = {kind: number for number, kind in enumerate(KINDS)}
    findings.sort(key=lambda found: order[found.kind])  # stable within a kind
    return Check(dataset, splits, images, findings)


def _inspect_all(
    dataset: DatasetSpec, listed: Sequence[tuple[str, ImageSource]], max_pixels: int
) -> tuple[list[CheckedImage], list[Finding]]:
    """Inspect each image with its labels; listed: the split and source of each."""
    num_classes, images, findings = len(dataset.names_in_labels), [], []
    with (
        Progress(len(listed), "checking", "images") as shown,
        ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool,
    ):
        results = pool.map(lambda one: inspect(one[0], one[1], num_classes, max_pixels), listed)
        for number, (image, found) in enumerate(results):
            images.append(image._replace(class_index=dataset.class_of(image.class_index)))
            findings += [finding._replace(image=number) for finding in found]
            shown.update()
    return images, findings


def _find_two_classes(
    copies: Sequence[Finding], images: Sequence[CheckedImage], class_names: Sequence[str]
) -> Iterator[Finding]:
    """Yield the copies that lie in the folder of another class."""
    for copy in copies:
        other = images[copy.other]
        match images[copy.image].source, other.source:
            case ClassImage(class_index=own), ClassImage(class_index=others) if own != others:
                name = brief(class_names[others])
                text = f"is of class {name} in {other.split}: {other.source.path}"
                yield copy._replace(kind="two_classes", text=text)


def _find_copies(images: Sequence[CheckedImage]) -> Iterator[Finding]:
    """Yield a finding for each image that is a copy of an earlier one, as the worst that it is.

    A copy of an image in an earlier split is a leak. Roboflow's augmented copies, which --split
    keeps together, are a leak in two splits, and correct in one.
    """
    prints = [image.fingerprint for image in images]
    if not prints:
        return
    files = [image.source.path.name for image in images]
    seen: set[tuple[int, bool]] = set()
    for groups, leak, copy in (
        (duplicates(prints), "leak", "repeated_image"),
        (group_copies(files, prints), "near_leak", ""),
        (near_duplicates(prints), "", "alike"),
    ):
        for number, first in enumerate(groups.tolist()):
            image, other = images[number], images[first]
            is_leak = image.split != other.split
            kind = leak if is_leak else copy
            known = (number, is_leak) in seen or (number, True) in seen
            if number == first or not kind or known:
                continue
            seen.add((number, is_leak))
            path, text = str(image.source.path), str(other.source.path)
            text = f"in {other.split}: {text}" if is_leak else text
            text = "listed twice" if text == path else text
            yield Finding(kind, image.split, path, text, number, first)


def _find_in_classes(images: Sequence[CheckedImage], dataset: DatasetSpec) -> Iterator[Finding]:
    """Yield a missing split, doubtful names, classes not in training, and missing outlines."""
    if not dataset.val and dataset.train_part is None:
        yield Finding("missing_split", "", dataset.name, "it has no images for val")
    names, labelled = dataset.class_names, "image" if dataset.is_of_folders else "object"
    counts = {split: count_objects(images, split, len(names)) for split in SPLITS}
    totals = np.sum(list(counts.values()), axis=0).tolist()
    yield from _find_doubtful_names(dict(zip(names, totals, strict=True)), labelled)
    used = {image.split for image in images if image.is_used}
    for split in ("train", "val"):
        if split in used and not counts[split].any():
            yield Finding("no_objects", split, split, f"none of its images has an {labelled}")
    in_train, in_val = counts["train"], counts["val"]
    for number in np.flatnonzero((in_val > 0) & (in_train == 0) & in_train.any()).tolist():
        text = f"val has {count(in_val[number], labelled)} of it, train none"
        yield Finding("not_in_train", "train", f"class {number}, {brief(names[number])}", text)
    total = sum(len(image.class_index) for image in images)
    missing = total - sum(image.num_outlines for image in images)
    if missing not in (0, total):
        text = f"{missing:,} of {count(total, 'object')}"
        yield Finding("no_outline", "", dataset.name, text)


def _find_doubtful_names(numbers: Mapping[str, int], labelled: str) -> Iterator[Finding]:
    """Yield classes with nearly equal names, and those named by a number among others.

    numbers: of objects, or of images in class folders, by class name.
    """
    for names in similar_names(tuple(numbers)):
        main, *others = sorted(names, key=lambda name: -numbers[name])
        merged = ", ".join(f"{brief(name)}: {brief(main)}" for name in others)
        text = f"is it one class? merge: {{{merged}}}"
        yield Finding("similar_names", "", ", ".join(map(brief, names)), text)
    numbered = [name for name in numbers if name.isdecimal()]
    for name in numbered if len(numbered) < len(numbers) else ():
        yield Finding("bare_number", "", brief(name), f"{count(numbers[name], labelled)} of it")


def _find_unpaired(sources: Sequence[ImageSource]) -> Iterator[Finding]:
    """Yield the label files without an image, and the images that nothing names.

    Only folders with an image of the dataset or its label file are searched; text files of other
    content, such as a list of classes, are no labels.
    """
    named = {source.path for source in sources if source.place is None}
    unused = [
        path
        for path in _beside(named)
        if path.suffix.lower() in IMAGE_SUFFIXES
        and not path.name.startswith("._")  # of macOS, which is counted already
        and path not in named
    ]
    labels = {_label_file(source.path) for source in sources if isinstance(source, ImageFile)}
    known = labels.union(map(_label_file, unused))
    for path in _beside(labels):
        if path.suffix == ".txt" and path not in known and has_rows(path):
            yield Finding("lost_labels", "", str(path), "no image of this name")
    for path in unused:
        text = "no split, list or annotation names it"
        yield Finding("unused_image", "", str(path), text)


def _label_file(image: Path) -> Path:
    return Path(label_file_of(image.as_posix()))


def _beside(paths: Iterable[Path]) -> list[Path]:
    """Return what lies in the folders of some files; nothing of a folder that cannot be read."""
    found: dict[Path, list[str]] = defaultdict(list)
    for folder in {path.parent for path in paths}:
        try:
            found[folder] = os.listdir(folder)
        except OSError:
            continue
    return [folder / name for folder in sorted(found) for name in sorted(found[folder])]
