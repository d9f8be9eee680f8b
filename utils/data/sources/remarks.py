"""Remarks on a split: unused images and objects, counted by kind.

The scan collects them. A command prints them when the data are read, and again at its end.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from duet.utils.errors import DatasetError
from duet.utils.text import count, printable

MOST_MISSING = 0.1  # fraction of a split's images; a training with more ends
LONGEST_EXAMPLE = 300  # characters

# Kinds that cost an image, or all its labels; the keys are kinds of the check's findings.
IMAGES = {
    "unusable_image": "images that cannot be read",
    "broken_label": "images with a label that cannot be read",
    "unknown_class": "images with a class that the dataset does not name",
    "out_of_range": "images with a coordinate outside",
    "other_shape": "images of another shape than was labelled",
    "near_label": "images whose label file has another name or place, used without objects",
}
TITLES = IMAGES | {
    "zero_area": "objects without an area",
    "repeated_object": "objects that are labelled twice",
    "exchanged_corners": "boxes with exchanged corners, used",
    "no_end_mark": "JPEG files without their end mark, used",
    "of_macos": "files of macOS (._*, __MACOSX)",
    "unread_folder": "folders that cannot be read",
    "dead_link": "links that lead nowhere",
    "beside_classes": "images beside the folders of classes",
    "in_both": "images that are also in train, used",
}


class Remark(NamedTuple):
    kind: str  # a key of TITLES, or a title such as "crowds"
    text: str  # the file and its fault
    number: int = 1  # of images or objects


def first_lines(remarks: Sequence[Remark], most: int) -> list[str]:
    """Return the texts of the first remarks, and how many others there are."""
    hidden = len(remarks) - most
    others = [f"... and {hidden:,} more; `duet check` lists all"] if hidden > 0 else []
    return [*(printable(remark.text) for remark in remarks[:most]), *others]


class Remarks:
    """The number of remarks of each kind on a split, and an example of each."""

    def __init__(self, split: str = "") -> None:
        self.split, self.num_images = split, 0
        self.numbers: dict[str, int] = {}
        self.examples: dict[str, str] = {}

    def add(self, kind: str, text: str, number: int = 1) -> None:
        self.numbers[kind] = self.numbers.get(kind, 0) + number
        self.examples.setdefault(kind, text)

    @property
    def num_missing(self) -> int:
        return sum(number for kind, number in self.numbers.items() if kind in IMAGES)

    def head(self) -> str:
        images = count(self.num_images, "image")
        if not self.num_missing:
            return f"{self.split}: {images}, all used"
        return f"{self.split}: {self.num_missing:,} of {images} not used as labelled"

    def lines(self) -> Iterator[str]:
        for kind, number in self.numbers.items():
            example = printable(self.examples[kind])[:LONGEST_EXAMPLE]
            such = ", such as" if number > 1 else ","
            yield f"  {printable(TITLES.get(kind, kind))}: {number:,}{such} {example}"

    def summary(self) -> list[str]:
        """Return the lines below their head; none if there is no remark."""
        return [self.head(), *self.lines()] if self.numbers else []


def require_most(splits: Sequence[Remarks], data: str) -> None:
    """Raise DatasetError if more than a tenth of the images of a split of --data is missing."""
    found = [one for one in splits if one.num_missing > MOST_MISSING * one.num_images]
    if found:
        lines = "\n".join(line for one in found for line in one.summary())
        raise DatasetError(
            f"more than a tenth of the images would not be used as labelled:\n{lines}\n"
            f"correct them (duet check --data {data} lists all), or add --allow-missing "
            "to train on the rest"
        )
