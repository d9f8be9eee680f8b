"""Classes whose names or numbers of objects look wrong, and images that are in two of them.

Before: `sources/class_names.py`. After: `checking.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from backend.words import count
from utils.data.check.inspection import CheckedImage
from utils.data.check.kinds import Finding
from utils.data.sources.class_folders import ClassImage
from utils.data.sources.class_names import similar_names
from utils.errors import brief


def find_in_classes(
    class_names: Sequence[str], num_objects: Mapping[str, np.ndarray], labelled: str
) -> list[Finding]:
    """Return the findings about classes.

    Args:
        num_objects: (C,) of each split.
        labelled: what has a class, in the singular.
    """
    found = [
        Finding("similar_names", "", ", ".join(map(brief, names)), "is it one class?")
        for names in similar_names(class_names)
    ]
    none = np.zeros(len(class_names), np.int64)
    in_all = sum(num_objects.values(), none)
    in_train, in_val = num_objects.get("train", none), num_objects.get("val", none)
    for number, name in enumerate(class_names):
        where = f"class {number}, {brief(name)}"
        if not in_all[number]:
            found.append(Finding("unused_class", "", where, f"no {labelled} of it"))
        elif in_val.any() and in_train[number] and not in_val[number]:
            text = f"train has {count(in_train[number], labelled)} of it, val none"
            found.append(Finding("not_in_val", "val", where, text))
        elif in_train.any() and in_val[number] and not in_train[number]:
            text = f"val has {count(in_val[number], labelled)} of it, train none"
            found.append(Finding("not_in_train", "train", where, text))
    return found


def find_contradictions(
    images: Sequence[CheckedImage], copies: Sequence[Finding], class_names: Sequence[str]
) -> list[Finding]:
    """Return a finding for each copy of an image that is in the folder of another class.

    copies: of images, of any kind.
    """
    found = []
    for copy in copies:
        image, other = images[copy.image], images[copy.other]
        first, second = (x.source for x in (image, other))
        if not isinstance(first, ClassImage) or not isinstance(second, ClassImage):
            continue
        if first.class_index != second.class_index:
            name = brief(class_names[second.class_index])
            text = f"is of class {name} in {other.split}: {second.path}"
            where = str(first.path)
            found.append(Finding("two_classes", image.split, where, text, copy.image, copy.other))
    return found
