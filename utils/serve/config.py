"""The settings of a server of models, and the command line of `python -m duet serve`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from duet.utils.cli.flags import (
    add_flags,
    check_flags,
    flag,
    new_parser,
    read_flags,
    same_flag,
    whole_from,
    within,
)
from duet.utils.detect.config import DetectConfig
from duet.utils.errors import UserError, brief

PROGRAM = "python -m duet serve"


class ModelSource(NamedTuple):
    """A model that is served."""

    name: str  # in requests
    weights: str  # a file


_of_detect = partial(same_flag, DetectConfig)


@dataclass(frozen=True)
class ServeConfig:
    """Which models are served, where, and within which limits."""

    weights: tuple[str, ...] = _of_detect("weights", metavar="[NAME=]F",
        help="files of docs/en/weights.md, one per model; a request names one, or gets the first; "
        "without NAME a model is named after its file, without the suffix")  # fmt: skip
    image_size: int = _of_detect("image_size")
    max_pixels: int = _of_detect("max_pixels", help="refuse images with more pixels than this")
    runtime: str = _of_detect("runtime")
    backend: str | None = _of_detect("backend")
    device: str = _of_detect("device")
    half: bool = _of_detect("half")
    confidence_threshold: float = _of_detect("confidence_threshold",
        help="confidence threshold of requests that give none")  # fmt: skip
    iou_threshold: float = _of_detect("iou_threshold",
        help="IoU threshold of NMS of requests that give none")  # fmt: skip
    max_detections: int = _of_detect("max_detections",
        help="maximum number of detections per image of requests that give none")  # fmt: skip
    host: str = flag("serving", "--host", default="127.0.0.1", metavar="A",
        help="address to listen on; any but the loopback needs --token-file")  # fmt: skip
    port: int = flag("serving", "--port", default=8000, metavar="N",
        check=whole_from(0, 65_535),
        help="port to listen on; 0: a free one, which the first line names")  # fmt: skip
    token_file: Path | None = flag("serving", "--token-file", default=None, type=Path,
        metavar="F", help="file of tokens, one per line; a request must carry one of "
        "them")  # fmt: skip
    insecure: bool = flag("serving", "--insecure", default=False,
        help="listen on any address without tokens: whoever reaches the server can use "
        "it")  # fmt: skip
    max_batch: int = flag("serving", "--max-batch", default=8, metavar="N",
        check=whole_from(1, 256),
        help="maximum number of images that go through the network together")  # fmt: skip
    max_wait_ms: float = flag("serving", "--max-wait-ms", default=5.0, metavar="MS",
        check=within(0, 10_000, "a number of milliseconds"),
        help="longest time in milliseconds that an image waits for others")  # fmt: skip
    max_queue: int = flag("serving", "--max-queue", default=64, metavar="N",
        check=whole_from(1, 10_000),
        help="requests that a model has in work and in its queue; more are answered with "
        "429")  # fmt: skip
    max_bytes: int = flag("serving", "--max-bytes", default=1 << 25, metavar="N",
        check=whole_from(1), help="refuse image files of more bytes than this")  # fmt: skip
    timeout: float = flag("serving", "--timeout", default=30.0, metavar="S",
        check=within(0.1, 86_400, "a number of seconds"),
        help="seconds that a request may take to arrive, and again to be answered; at "
        "shutdown, accepted requests have as long")  # fmt: skip
    is_size_given: bool = dataclasses.field(default=True, compare=False)  # else the task's own

    @property
    def models(self) -> tuple[ModelSource, ...]:
        """The models by name; the first is the one that a request without a name means."""
        return tuple(map(_model_source, self.weights))

    def __post_init__(self) -> None:
        check_flags(self)
        if not self.weights or not all(model.weights for model in self.models):
            raise UserError("--weights is needed: a file that docs/en/weights.md lists")
        names = [model.name for model in self.models]
        for name in names:
            if not name or not name.isprintable() or name != name.strip():
                raise UserError(
                    f"--weights {brief(name)}=...; a model's name has printable characters, as in "
                    "--weights day=a/best.pt"
                )
            if names.count(name) > 1:
                raise UserError(
                    f"--weights gives two models the name {brief(name)}; name them apart, as in "
                    "--weights day=a/best.pt night=b/best.pt"
                )


def _model_source(word: str) -> ModelSource:
    """Return the model of NAME=FILE or FILE; a "=" may also be part of a folder's name."""
    name, mark, path = word.partition("=")
    if mark and "/" not in name:
        return ModelSource(name, path)
    return ModelSource(Path(word).stem, word)


def parse_serve_flags(arguments: Sequence[str] | None = None) -> ServeConfig:
    """Parse the command line, by default sys.argv; exit with code 2 on an unknown flag."""
    parser = new_parser(PROGRAM, "Answer HTTP requests with what models find in images.")
    add_flags(parser, ServeConfig)
    values, given = read_flags(parser, arguments)
    return ServeConfig(**values, is_size_given="image_size" in given)
