"""What /openapi.json tells of each path, with examples of the task at hand.

Before: `app.py`, whose paths these are. After: whoever writes a client.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from utils.serve.messages import MEDIA_TYPES, Query
from utils.serve.queries import MOST_DETECTIONS, READERS

DETECT = "/v1/detect"
ABOUT: dict[str, Any] = {
    "title": "Duet",
    "version": "1",
    "description": "Models that find objects in images, behind HTTP. Errors are JSON with a code "
    "for programs and a sentence for people.",
}
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
        }
    },
}
_BOX = {"box_xyxy": [54.5, 161.2, 307.8, 470.0], "score": 0.87, "class_index": 0, "name": "person"}
# What is found, as `ImageResult.drawable_records` has it for each task.
FOUND: Mapping[str, dict[str, Any]] = {
    "detect": {"detections": [_BOX]},
    "segment": {
        "detections": [
            {
                **_BOX,
                "box_xyxy": [54.1, 161.2, 57.8, 470.0],
                "segmentation": {"size": [480, 640], "counts": "Q_i0e9[500000od`8"},
                "outline": [[54.0, 161.0], [54.0, 469.0], [57.0, 469.0], [57.0, 161.0]],
            }
        ]
    },
    "classify": {"classes": [{"score": 0.87, "class_index": 0, "name": "person"}]},
}
_REST: dict[str, Any] = {
    "model": "best",
    "image": {"width": 640, "height": 480},
    "milliseconds": {"wait": 0.4, "decode": 3.1, "network": 21.6, "finish": 0.8, "total": 25.9},
}


def _error(code: str, message: str, description: str) -> dict[str, Any]:
    example = {"error": {"code": code, "message": message}}
    content = {"application/json": {"schema": _ERROR_SCHEMA, "example": example}}
    return {"description": description, "content": content}


def _parameter(name: str, schema: Mapping[str, Any], description: str, example: Any) -> dict:
    place = {"name": name, "in": "query", "required": False}
    return {**place, "schema": dict(schema), "description": description, "example": example}


_PART = {"type": "number", "minimum": 0, "maximum": 1}
_PARAMETERS = [
    _parameter("model", {"type": "string"}, "name of a model; by default the first", "best"),
    _parameter("conf", _PART, "lowest score", Query.conf),
    _parameter(
        "iou",
        _PART,
        "overlap above which the worse of two boxes is dropped; at 1 none is, "
        "and network_xyxy tells what is compared",
        Query.iou,
    ),
    _parameter(
        "max_det",
        {"type": "integer", "minimum": 1, "maximum": MOST_DETECTIONS},
        "maximum number of detections",
        100,
    ),
    _parameter("classes", {"type": "string"}, "only these classes, by number", "0,2"),
    _parameter("agnostic", {"type": "boolean"}, "a box removes boxes of all classes", False),
]
assert [parameter["name"] for parameter in _PARAMETERS] == ["model", *READERS]

_FILE = {"type": "string", "format": "binary"}
_FORM = {"type": "object", "required": ["image"], "properties": {"image": _FILE}}
_IMAGE_TYPES = ("image/jpeg", "image/png", "image/webp", "application/octet-stream")
_BODY = {
    "required": True,
    "description": "an image file as it is, or a form with one file",
    "content": {
        **{name: {"schema": _FILE} for name in _IMAGE_TYPES},
        "multipart/form-data": {"schema": _FORM},
    },
}
_ANSWER = {
    "description": "what was found; an image where Accept asks for one",
    "content": {
        name: {"schema": {"type": "object"} if kind == "json" else _FILE}
        for kind, name in MEDIA_TYPES.items()
    },
}
_DETECT_ERRORS: dict[int | str, dict[str, Any]] = {
    400: _error("bad_request", "conf 2.0; a number from 0 to 1 is needed", "a wrong query or form"),
    401: _error("unauthorized", "the token is needed", "no token, or one that is not known"),
    403: _error(
        "foreign_page",
        "a page of another site sent this request",
        "a page of another site, and the server has no tokens",
    ),  # fmt: skip
    404: _error("unknown_model", "the server has no model of this name", "no such model"),
    406: _error("not_acceptable", "no answer fits Accept", "an Accept that no answer fits"),
    408: _error("request_timeout", "812 bytes came in 30 seconds", "the image came too slowly"),
    413: _error(
        "too_large",
        "the image file is larger than 33,554,432 bytes",
        "too many bytes, or too many_pixels",
    ),  # fmt: skip
    415: _error("unsupported_media_type", "the body is not an image", "no image of a known kind"),
    422: _error(
        "bad_image",
        "truncated: the JPEG file does not reach its end mark",
        "an image that cannot be decoded",
    ),  # fmt: skip
    429: _error(
        "queue_full",
        "the model holds 64 requests, the most that it may; try again in 2 s",
        "too much work; Retry-After has the seconds",
    ),  # fmt: skip
    503: _error(
        "worker_lost",
        "the model's process ended at this image, twice",
        "starting, ending, or a model that failed",
    ),  # fmt: skip
    504: _error("timeout", "no answer in 30 seconds, and the work is dropped", "out of time"),
}


def _told(summary: str, media_type: str, example: Any) -> dict[str, Any]:
    """Return the documentation of a path that only tells something."""
    answer = {"description": summary, "content": {media_type: {"example": example}}}
    return {"summary": summary, "responses": {200: answer}}


_MODEL = {
    "name": "best",
    "task": "detect",
    "class_names": ["person", "bicycle"],
    "image_size": 640,
    "ready": True,
    "defaults": {"conf": Query.conf, "iou": Query.iou, "max_det": Query.max_det},
}
_NOT_READY = {503: _error("starting", "a model is being started", "not ready, or ending")}
_READY = _told("whether all models can answer", "application/json", {"status": "ready"})
# The arguments of `FastAPI.add_api_route` by path.
PATHS: dict[str, dict[str, Any]] = {
    "/": {**_told("the page", "text/html", ""), "include_in_schema": False},
    "/healthz": _told("that the process lives", "application/json", {"status": "ok"}),
    "/readyz": {**_READY, "responses": {**_READY["responses"], **_NOT_READY}},
    "/metrics": _told("figures for Prometheus", "text/plain", "duet_held_requests 0.0"),
    "/v1/model": _told(
        "all models, the default one first", "application/json", {"models": [_MODEL]}
    ),  # fmt: skip
    "/openapi.json": {**_told("this", "application/json", {}), "include_in_schema": False},
    DETECT: {
        "summary": "what a model finds in an image",
        "responses": {200: _ANSWER, **_DETECT_ERRORS},
        "openapi_extra": {"parameters": _PARAMETERS, "requestBody": _BODY},
    },
}


def with_example(document: Mapping[str, Any], task: str) -> dict[str, Any]:
    """Return the description with an answer as models of a task give it.

    task: its name; "" if that is not known yet.
    """
    found = FOUND.get(task) or next(iter(FOUND.values()))
    described = copy.deepcopy(dict(document))
    answer = described["paths"][DETECT]["post"]["responses"]["200"]
    answer["content"]["application/json"]["example"] = {**_REST, **found}
    return described
