"""The server's settings, and the command line of `duet serve`."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from duet.utils.cli.flags import check_flags, flag, read_flags, same_flag, whole_from, within
from duet.utils.detect.config import DetectConfig
from duet.utils.errors import UserError, brief
from duet.utils.project import WEIGHTS_FILES

PROGRAM = "duet serve"


class ModelSource(NamedTuple):
    name: str  # in requests
    weights: str  # a file


_detect_flag = partial(same_flag, DetectConfig)


@dataclass(frozen=True)
class ServeConfig:
    """The models to serve, the address to listen on, and limits."""

    weights: tuple[str, ...] = _detect_flag("weights", metavar="[NAME=]F",
        help="weights files, one per model; a request selects a model by "
        "NAME (default: the file name without suffix), or gets the first")  # fmt: skip
    image_size: int | None = _detect_flag("image_size")
    max_pixels: int = _detect_flag("max_pixels", help="refuse images with more pixels than this")
    runtime: str = _detect_flag("runtime")
    backend: str | None = _detect_flag("backend")
    device: str = _detect_flag("device")
    half: bool = _detect_flag("half")
    confidence_threshold: float = _detect_flag("confidence_threshold",
        help="default confidence threshold for requests")  # fmt: skip
    iou_threshold: float = _detect_flag("iou_threshold",
        help="default IoU threshold of NMS for requests")  # fmt: skip
    max_detections: int = _detect_flag("max_detections",
        help="default maximum number of detections per image for requests")  # fmt: skip
    host: str = flag("serving", "--host", default="127.0.0.1", metavar="A",
        help="address to listen on; any but loopback requires --token-file")  # fmt: skip
    port: int = flag("serving", "--port", default=8000, metavar="N",
        check=whole_from(0, 65_535),
        help="port to listen on; 0: any free port, shown in the log")  # fmt: skip
    token_file: Path | None = flag("serving", "--token-file", default=None, type=Path,
        metavar="F", help="file with access tokens, one per line; requests must carry "
        "one")  # fmt: skip
    insecure: bool = flag("serving", "--insecure", default=False,
        help="listen on any address without tokens: anyone who can reach the server can use "
        "it")  # fmt: skip
    max_batch: int = flag("serving", "--max-batch", default=8, metavar="N",
        check=whole_from(1, 256),
        help="maximum batch size")  # fmt: skip
    max_wait_ms: float = flag("serving", "--max-wait-ms", default=5.0, metavar="MS",
        check=within(0, 10_000, "a number of milliseconds"),
        help="maximum time in milliseconds an image waits for a batch to fill")  # fmt: skip
    max_queue: int = flag("serving", "--max-queue", default=64, metavar="N",
        check=whole_from(1, 10_000),
        help="maximum number of requests per model, running and queued; more are refused with "
        "429")  # fmt: skip
    max_bytes: int = flag("serving", "--max-bytes", default=1 << 25, metavar="N",
        check=whole_from(1), help="refuse image files larger than this")  # fmt: skip
    timeout: float = flag("serving", "--timeout", default=30.0, metavar="S",
        check=within(0.1, 86_400, "a number of seconds"),
        help="time limit in seconds for a request to arrive, for its answer, and for accepted "
        "requests at shutdown")  # fmt: skip

    @property
    def models(self) -> tuple[ModelSource, ...]:
        """The models; the first is the default."""
        return tuple(map(_model_source, self.weights))

    def __post_init__(self) -> None:
        check_flags(self)
        if not self.weights or not all(model.weights for model in self.models):
            raise UserError(f"--weights is required: {WEIGHTS_FILES}")
        names = [model.name for model in self.models]
        for name in names:
            is_printable = name and name.isprintable() and name == name.strip()
            fault = "is used twice" if is_printable else "is blank or not printable"
            if not is_printable or names.count(name) > 1:
                raise UserError(
                    f"--weights: the name {brief(name)} of a model {fault}; name each model, as "
                    "in --weights day=a/best.pt night=b/best.pt"
                )


def _model_source(word: str) -> ModelSource:
    """Return the model of NAME=FILE or FILE; a "=" may also be part of a folder's name."""
    name, mark, path = word.partition("=")
    if mark and Path(name).name == name:
        return ModelSource(name, path)
    return ModelSource(Path(word).stem, word)


def parse_serve_flags(arguments: Sequence[str] | None = None) -> ServeConfig:
    """Parse the command line, by default sys.argv; exit with code 2 on an unknown flag."""
    about = "Serve models over HTTP."
    return ServeConfig(**read_flags(ServeConfig, PROGRAM, about, arguments)[0])
