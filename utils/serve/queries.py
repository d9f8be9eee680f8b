"""The query of a request: which model, and what counts as found; each value checked as its flag.

Before: the address of a request, which anybody wrote. After: `app.py`, then the model's worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from utils.cli.detect_config import DetectConfig
from utils.cli.flags import flags_of, require_from
from utils.cli.serve_config import ServeConfig
from utils.errors import UserError, brief
from utils.serve.failures import RequestError, bad_request
from utils.serve.messages import Query

MOST_FIELDS = 32
MOST_DETECTIONS = 5_000
MOST_MASKS = 1_000  # of one image; each is drawn, packed and outlined in its size
MOST_CLASSES = 10_000
SEGMENT = "segment"  # the task of models that find masks
SWITCHES = {"true": True, "1": True, "false": False, "0": False}


class Asked(NamedTuple):
    """What a query asks for."""

    model: str | None  # its name; None for the default one
    query: Query


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{name} {brief(text)}; a number is needed") from None


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 18):
        raise UserError(f"{name} {brief(text)}; a whole number is needed")
    return int(text)


def _classes(name: str, text: str) -> tuple[int, ...]:
    words = text.split(",", MOST_CLASSES)
    if len(words) > MOST_CLASSES:
        raise UserError(f"{name}: at most {MOST_CLASSES:,} are accepted; leave it out for all")
    numbers = tuple(_whole(name, word) for word in words)
    for number in numbers:
        require_from(name, number, 0)
    return numbers


def _switch(name: str, text: str) -> bool:
    if text not in SWITCHES:
        raise UserError(f"{name} {brief(text)}; accepted: {', '.join(SWITCHES)}")
    return SWITCHES[text]


# The fields of `Query`, each with what reads it and the field of `DetectConfig` that checks it.
READERS: Mapping[str, tuple[Callable[[str, str], Any], str]] = {
    "conf": (_number, "confidence_threshold"),
    "iou": (_number, "iou_threshold"),
    "max_det": (_whole, "max_detections"),
    "classes": (_classes, "classes"),
    "agnostic": (_switch, "class_agnostic"),
}
NAMES = ("model", *READERS)
_CHECKS = {name: flags_of(DetectConfig)[field].check for name, (_, field) in READERS.items()}


def default_query(config: ServeConfig) -> Query:
    """Return what a request without a query asks for."""
    return Query(config.confidence_threshold, config.iou_threshold, config.max_detections)


def read_query(text: bytes, defaults: Query) -> Asked:
    """Return what a query asks for.

    Args:
        text: what stands behind the "?" of an address.

    Raises:
        RequestError: a name that is not known or stands twice, or a value that is not accepted.
    """
    values: dict[str, Any] = {}
    for name, word in _pairs(text):
        if name not in NAMES:
            raise bad_request(f"{brief(name)} is no query parameter; accepted: {', '.join(NAMES)}")
        if name in values:
            raise bad_request(f"{name} stands twice in the query; give it once")
        values[name] = word if name == "model" else _value(name, word)
    model = values.pop("model", None)
    return Asked(model, Query(**{**vars(defaults), **values}))


def _pairs(text: bytes) -> list[tuple[str, str]]:
    try:
        decoded = text.decode("ascii")
        return parse_qsl(
            decoded, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS
        )
    except ValueError as error:
        raise bad_request(
            f"the query cannot be read: {brief(str(error))}; write it as in ?conf=0.25&classes=0,2"
        ) from error


def _value(name: str, word: str) -> Any:
    try:
        value = READERS[name][0](name, word)
        check = _CHECKS[name]
        if check is not None:
            check(name, value)
    except UserError as error:
        raise bad_request(str(error)) from error
    return value


def require_detections(query: Query, task: str) -> None:
    """Raise RequestError for more detections than a model of a task finishes for one request."""
    most = MOST_MASKS if task == SEGMENT else MOST_DETECTIONS
    if query.max_det > most:
        raise bad_request(
            f"max_det {query.max_det}; at most {most:,} are accepted for this model; leave it out "
            "for the default"
        )


def require_classes(query: Query, num_classes: int) -> None:
    """Raise RequestError for a class that a model of so many classes does not know."""
    for number in query.classes or ():
        if number >= num_classes:
            raise RequestError(
                400, "bad_request", f"classes {number}; the model knows 0 to {num_classes - 1}"
            )
