"""Copy weights from one model to another where shapes fit; the head's by class name on demand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from duet.utils.errors import UserError
from duet.utils.tasks import ClassRows

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Transfer:
    state: dict[str, np.ndarray]
    taken: int  # tensors that came from the weights, wholly or by class
    left: tuple[str, ...]  # one line for each tensor that did not, with the reason


@dataclass(frozen=True)
class ClassMap:
    """Pairs of equal classes in a model and in weights, by index."""

    new_index: np.ndarray  # (K,) int64
    old_index: np.ndarray  # (K,) int64, paired
    num_new: int
    num_old: int


def match_classes(new_names: Sequence[str], old_names: Sequence[str]) -> ClassMap:
    """Pair classes by name; raise UserError for weights without class names."""
    if not old_names:
        raise UserError(
            "--remap-classes: the weights have no class names; leave the flag out, or start from "
            "weights that have them"
        )
    places = {name: index for index, name in reversed(list(enumerate(old_names)))}
    pairs = [(index, places[name]) for index, name in enumerate(new_names) if name in places]
    new_index, old_index = np.array(pairs, np.int64).reshape(-1, 2).T
    return ClassMap(new_index, old_index, len(new_names), len(old_names))


def transfer_arrays(
    state: Arrays,
    arrays: Arrays,
    kept: Sequence[str] = (),
    rows: ClassRows | None = None,
    classes: ClassMap | None = None,
) -> Transfer:
    """Replace the arrays of a state where names and shapes agree.

    Args:
        state: state of the new model, by name.
        arrays: arrays in the weights.
        kept: names not to replace.
        rows: class rows of the head's arrays.
        classes: pairs of classes whose rows to copy; other rows stay.
    """
    result, left = dict(state), []
    for name, own in state.items():
        given = arrays.get(name)
        if given is None:
            left.append(f"{name}: not in the weights")
        elif name in kept and not np.array_equal(own, given):
            left.append(f"{name}: kept from the model YAML")
        else:
            taken = given if own.shape == given.shape else None
            if classes is not None and rows is not None and name.startswith(rows.prefixes):
                taken = remap_rows(own, given, rows, classes)
            if taken is None:
                shapes = f"shape {list(given.shape)} in the weights, {list(own.shape)} in the model"
                left.append(f"{name}: {shapes}")
            else:
                result[name] = taken
    return Transfer(result, len(state) - len(left), tuple(left))


def remap_rows(
    own: np.ndarray, given: np.ndarray, rows: ClassRows, classes: ClassMap
) -> np.ndarray | None:
    """Copy the rows of shared classes, and those around the classes; None if shapes do not fit.

    Args:
        own: (A * (before + new classes + after), ...).
        given: (A * (before + old classes + after), ...).
    """
    others = rows.before + rows.after
    outputs, old_outputs = others + classes.num_new, others + classes.num_old
    anchors = len(own) // outputs
    if own.shape[1:] != given.shape[1:] or len(given) != anchors * old_outputs:
        return None
    result = own.reshape(anchors, outputs, *own.shape[1:]).copy()
    source = given.reshape(anchors, old_outputs, *given.shape[1:])
    result[:, : rows.before] = source[:, : rows.before]
    result[:, outputs - rows.after :] = source[:, old_outputs - rows.after :]
    result[:, rows.before + classes.new_index] = source[:, rows.before + classes.old_index]
    return result.reshape(own.shape)
