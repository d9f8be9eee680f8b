"""The kind of answer that a client accepts, by the Accept header of its request.

Source: RFC 9110, section 12.5.1.
"""

from __future__ import annotations

from collections.abc import Mapping

from utils.serve.failures import RequestError
from utils.serve.messages import MEDIA_TYPES


def answer_kind(accept: str) -> str:
    """Return the key of `MEDIA_TYPES` that a client likes best; of equal ones its first.

    Args:
        accept: the header; "" if there is none.

    Raises:
        RequestError: it accepts none of them.
    """
    weights: dict[str, float] = {}  # by range: image/png, image/*, */*
    for part in (accept or "*/*").lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        weights[name] = _weight(parameters)
    taken = [
        kind
        for name in weights
        for kind, media_type in MEDIA_TYPES.items()
        if name in _ranges(media_type) and _weight_of(media_type, weights)
    ]
    if not taken:
        known = ", ".join(MEDIA_TYPES.values())
        raise RequestError(406, "not_acceptable", f"no answer fits Accept; accepted: {known}")
    return max(taken, key=lambda kind: _weight_of(MEDIA_TYPES[kind], weights))


def _ranges(media_type: str) -> tuple[str, str, str]:
    """Return the names that a media type answers to, the most specific first."""
    return media_type, media_type.partition("/")[0] + "/*", "*/*"


def _weight_of(media_type: str, weights: Mapping[str, float]) -> float:
    """Return what the most specific of the ranges that a client names gives a media type."""
    return next((weights[name] for name in _ranges(media_type) if name in weights), 0.0)


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                weight = float(parameter.removeprefix("q="))
            except ValueError:
                return 0.0
            return weight if weight > 0 else 0.0  # nan too
    return 1.0
