"""Classes whose names or numbers of objects look wrong.

Before: `sources/class_names.py`. After: `checking.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from utils.data.check.kinds import Finding
from utils.data.sources.class_names import similar_names
from utils.errors import brief


def find_in_classes(
    class_names: Sequence[str], num_objects: Mapping[str, np.ndarray]
) -> list[Finding]:
    """Return the findings about classes.

    Args:
        num_objects: (C,) of each split.
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
            found.append(Finding("unused_class", "", where, "no object of it"))
        elif in_val.any() and in_train[number] and not in_val[number]:
            text = f"train has {in_train[number]:,} of its objects, val none"
            found.append(Finding("not_in_val", "val", where, text))
        elif in_train.any() and in_val[number] and not in_train[number]:
            text = f"val has {in_val[number]:,} of its objects, train none"
            found.append(Finding("not_in_train", "train", where, text))
    return found
