"""Load served models and answer requests, in threads that each take one batch at a time."""

import json
import logging
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from duet import backend
from duet.backend.checks import CPU
from duet.models.detect.pipeline import Lanes, finished
from duet.models.detect.settings import configured, make_detector
from duet.models.heads.base import Candidates
from duet.models.inference.image_detector import ImageDetector
from duet.utils.data.image.image_file import encode_image, suffix_that_holds
from duet.utils.data.image.letterbox import FILL, View
from duet.utils.detect.config import DetectConfig, call_config
from duet.utils.detect.media.image_file import decode_image
from duet.utils.detect.media.source import Frame
from duet.utils.detect.pipeline.threads import num_threads
from duet.utils.detect.results.image_result import ImageResult
from duet.utils.errors import BrokenSourceError, UserError
from duet.utils.files.json_files import Document
from duet.utils.serve.config import ModelSource, ServeConfig
from duet.utils.serve.frames import Header, pack_frame, read_frame
from duet.utils.weights.load import ExportedWeights, Weights, load_to_detect

MOST_BOXES = 5_000
FEWEST_THREADS = 2  # one decodes while the other runs the network
STAGES = ("wait", "decode", "network", "finish")
SUFFIXES = {"jpeg": ".jpg", "png": ".png"}
MEDIA_TYPES = {".jpg": "image/jpeg", ".png": "image/png"}

log = logging.getLogger("serve")


@dataclass(frozen=True)
class ServedModel:
    detector: ImageDetector
    about: Header  # description for /v1/model

    def configured(self, query: Document) -> ImageDetector:
        """Return the detector with a request's settings, sharing the network; else UserError."""
        most = self.detector.head.task.most_served or MOST_BOXES
        if query.get("max_det", 1) > most:
            raise UserError(f"max_det {query['max_det']} is too large; accepted: up to {most:,}")
        config = call_config(self.detector.class_names, **{**self.about["defaults"], **query})
        config.refuse(self.detector.head.task.refused)
        return configured(self.detector, config)


def load_model(source: ModelSource, config: ServeConfig) -> ServedModel:
    """Load a model and run it once, so that the first request does not wait for set-up."""
    shared = {field.name for field in fields(DetectConfig)} & vars(config).keys()
    settings = {name: getattr(config, name) for name in shared} | {"weights": (source.weights,)}
    weights = load_to_detect(source.weights, config.runtime, several=True)
    detector = make_detector(DetectConfig(**settings), [weights])
    most = batch_size_of(weights, detector.device, config.max_batch)
    side = detector.image_size
    detector.predictor.require_memory((most, 3, side, side), trains=False)
    detector.detect([np.full((side, side, 3), FILL, np.uint8)])
    runtime = weights.runtime.name if isinstance(weights, ExportedWeights) else None
    about = {
        "name": source.name,
        "task": detector.head.task.name,
        "class_names": detector.class_names,
        "image_size": side,
        "runs_in": runtime or backend.device.describe(detector.device),
        "max_batch": most,
        "weights": Path(source.weights).name,
        "defaults": {
            "conf": config.confidence_threshold,
            "iou": config.iou_threshold,
            "max_det": config.max_detections,
        },
    }
    return ServedModel(detector, about)


def batch_size_of(weights: Weights, device: str, most: int) -> int:
    """Return the number of images per forward pass, at most --max-batch.

    On a CPU each lane takes one: batches of four need 54 ms per image instead of 51 (YOLOv5n, ONNX
    Runtime, 640x480 px).
    """
    if isinstance(weights, ExportedWeights):
        metadata = weights.runtime.metadata
        if not metadata.dynamic:
            return min(most, metadata.batch_size)
        return 1 if weights.lanes > 1 else most
    return 1 if device == CPU else most


@dataclass
class Job:
    asked: Header  # model, query, answer (format), id and deadline, as sent by the server
    content: bytes  # image file
    # Arrival time, then the end of each stage.
    clock: list[float] = field(default_factory=lambda: [time.perf_counter()])
    detector: ImageDetector = field(init=False)  # with the request's settings
    image: np.ndarray = field(init=False)  # (H, W, 3) uint8 RGB
    view: View = field(init=False)

    def end_stage(self) -> None:
        self.clock.append(time.perf_counter())

    def milliseconds(self) -> dict[str, float]:
        """Return the time of each stage, rounded to microseconds."""
        steps = zip(STAGES, self.clock, self.clock[1:], strict=False)
        stages = {stage: round(1000 * (end - start), 3) for stage, start, end in steps}
        return {**stages, "total": round(1000 * (self.clock[-1] - self.clock[0]), 3)}


class Worker:
    def __init__(
        self, models: Sequence[ServedModel], config: ServeConfig, answers: BinaryIO
    ) -> None:
        self._models, self._config = models, config
        self._answers, self._sending = answers, threading.Lock()
        names = (model.about["name"] for model in models)
        self._waiting: dict[str, queue.Queue[Job]] = {name: queue.Queue() for name in names}

    def run(self, requests: BinaryIO) -> None:
        """Answer requests until the stream ends."""
        for model in self._models:
            threads = max(model.detector.lanes, num_threads(), FEWEST_THREADS)
            pool = Lanes(threads)
            for _ in range(threads):
                pool.submit(self._answer_batches, model)
        self._send({"models": [model.about for model in self._models]})
        while (request := read_frame(requests)) is not None:
            self._waiting[request[0]["model"]].put(Job(*request))

    def _send(self, header: Header, body: bytes = b"") -> None:
        with self._sending:
            self._answers.write(pack_frame(header, body))
            self._answers.flush()

    def _answer_batches(self, model: ServedModel) -> None:
        while True:
            jobs = [job for job in self._next_batch(model) if self._decode(model, job)]
            if jobs:
                self._answer(model, jobs)

    def _next_batch(self, model: ServedModel) -> list[Job]:
        """Wait for a request, then up to --max-wait-ms for others to batch with it."""
        waiting = self._waiting[model.about["name"]]
        jobs = [waiting.get()]
        until = time.monotonic() + self._config.max_wait_ms / 1000
        while len(jobs) < model.about["max_batch"]:
            try:
                jobs.append(waiting.get(timeout=max(0, until - time.monotonic())))
            except queue.Empty:
                break
        return jobs

    def _decode(self, model: ServedModel, job: Job) -> bool:
        """Decode the image of a request; answer the request and return False if that fails."""
        with self._answering_errors([job], mistake=(400, "bad_request")):
            if time.monotonic() > job.asked["deadline"]:
                raise UserError("the request timed out")  # the client no longer waits
            job.end_stage()
            job.detector = model.configured(job.asked["query"])
            job.image = decode_image(job.content, self._config.max_pixels)
            (job.view,) = job.detector.views(job.image)
            job.end_stage()
            return True
        return False

    def _answer(self, model: ServedModel, jobs: list[Job]) -> None:
        # Each image's own settings are applied afterwards.
        settings = [job.detector.suppression for job in jobs]
        widest = replace(
            settings[0],
            confidence_threshold=min(x.confidence_threshold for x in settings),
            max_detections=max(x.max_detections for x in settings),
        )
        found: list[Candidates] = []
        with self._answering_errors(jobs):
            found = jobs[0].detector.predict([job.view for job in jobs], widest)
        for job in jobs:
            job.end_stage()
        for job, rows in zip(jobs[: len(found)], found, strict=True):  # none after an error
            with self._answering_errors([job]):
                self._finish(model, job, rows, len(jobs))

    def _finish(self, model: ServedModel, job: Job, rows: Candidates, batch: int) -> None:
        kind, frame = job.asked["answer"], Frame(job.image, "image")
        result = finished(job.detector, frame, [job.view], [rows])
        body, media_type = b"", "application/json"
        if kind != "json":
            suffix = suffix_that_holds(SUFFIXES[kind], result.image)  # a large JPEG becomes PNG
            body, media_type = encode_image(suffix, result.plot()), MEDIA_TYPES[suffix]
        job.end_stage()
        times = job.milliseconds()
        body = body or as_json(result, model.about["name"], times)
        header = {"id": job.asked["id"], "media_type": media_type}
        self._send({**header, "count": len(result), "batch": batch, "milliseconds": times}, body)

    @contextmanager
    def _answering_errors(
        self, jobs: Sequence[Job], mistake: tuple[int, str] = (500, "failed")
    ) -> Iterator[None]:
        """Answer requests with the error raised in the block, if any, and continue.

        mistake: status and code for a UserError, which the request or the model may cause.
        """
        try:
            yield
            return
        except BrokenSourceError as error:
            refusal = (422, "bad_image", str(error))
        except UserError as error:
            refusal = (*mistake, str(error))
        except Exception:
            log.exception("a request failed:")
            refusal = (500, "failed", "the model failed on this image; the log has the reason")
        for job in jobs:
            self._send({"id": job.asked["id"], "refusal": refusal})


def as_json(result: ImageResult, model: str, milliseconds: dict[str, float]) -> bytes:
    height, width = result.size
    answer = {
        "model": model,
        "image": {"width": width, "height": height},
        **result.drawable_records(),
        "milliseconds": milliseconds,
    }
    return json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()
