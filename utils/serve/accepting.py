"""What kind of answer a client takes, by the Accept header of its request.

Source: RFC 9110, section 12.5.1.
"""

from __future__ import annotations

from utils.serve.failures import RequestError
from utils.serve.messages import MEDIA_TYPES

_KINDS = {media_type: kind for kind, media_type in MEDIA_TYPES.items()}
_FIRST = {"*/*": "json", "application/*": "json", "image/*": "jpeg"}  # of a range, what is sent


def answer_kind(accept: str) -> str:
    """Return the key of `MEDIA_TYPES` that a client likes best; of equal ones its first.

    Args:
        accept: the header; "" where there is none.

    Raises:
        RequestError: it takes none of them.
    """
    best, weight = "", 0.0
    for part in (accept or "*/*").lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        kind, asked = _KINDS.get(name) or _FIRST.get(name, ""), _weight(parameters)
        if kind and asked > weight:
            best, weight = kind, asked
    if not best:
        known = ", ".join(_KINDS)
        raise RequestError(406, "not_acceptable", f"no answer fits Accept; accepted: {known}")
    return best


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter.removeprefix("q="))
            except ValueError:
                return 0.0
    return 1.0
