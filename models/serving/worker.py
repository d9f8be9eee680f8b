"""Requests -> answers: decoding, network and finishing side by side, each in threads of its own.

Before: `job.py` has the model and the link. After: `answers.py` makes the bodies. Answers go out in
any order; the front process holds no more requests under way than `Worker.window`.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from models.inference.lanes import Lanes
from models.serving.answers import json_of, picture_of
from models.serving.gathering import Gatherer
from models.serving.link import Link
from models.serving.model import ServedModel
from models.serving.work import GivenUpError, Work
from utils.data.image.header import BrokenImageError
from utils.errors import UserError
from utils.media.frame import Frame
from utils.media.image_file import decode_image
from utils.media.source import BrokenSourceError
from utils.pipeline.background import background_pool, num_threads
from utils.serve.messages import MEDIA_TYPES, WorkerSettings

FURTHEST = 1e30  # pixels: JSON has no infinity
FEWEST_THREADS = 2  # one image that takes long to decode shall not stall the others
FAILED = "the model failed on this image; the server's log has the reason"

log = logging.getLogger("serve")


class Worker:
    """Answers requests with a model; a context manager, whose end waits only for the network.

    Attributes:
        window: requests that keep all threads busy; more of them would only wait.
    """

    def __init__(self, model: ServedModel, settings: WorkerSettings, link: Link) -> None:
        self._model, self._link, self._max_pixels = model, link, settings.max_pixels
        threads, lanes = max(num_threads(), FEWEST_THREADS), model.detector.lanes
        self.window = 2 * (threads + lanes * model.most)
        self._decoders = background_pool(threads, "decode")
        self._large = background_pool(1, "decode large")
        self._finishers = ThreadPoolExecutor(threads, "finish")
        seconds = settings.max_wait_ms / 1000
        self._gatherer: Gatherer[Work] = Gatherer(Work.like, model.most, seconds)
        self._under_way: dict[int, Work] = {}
        self._at_end = ExitStack()

    def __enter__(self) -> Worker:
        for pool in (self._decoders, self._large, self._finishers):
            self._at_end.callback(pool.shutdown, wait=False, cancel_futures=True)
        lanes = self._at_end.enter_context(Lanes(self._model.detector.lanes))
        self._at_end.callback(self._gatherer.close)
        for _ in range(self._model.detector.lanes):
            lanes.submit(self._run_lane)
        return self

    def __exit__(self, *error: object) -> None:
        self._at_end.close()

    def take(self, work: Work) -> None:
        """Begin with a request; its answer follows."""
        self._under_way[work.number] = work
        self._decoders.submit(self._begin, work)

    def give_up(self, number: int) -> None:
        """Drop a request before its next stage, if it is not answered yet; that is its answer."""
        work = self._under_way.get(number)
        if work is not None:
            work.is_given_up = True

    def _begin(self, work: Work) -> None:
        with self._answering([work], mistake="refused"):
            work.require_wanted()
            work.detector = self._model.asked(work.query)
            if work.is_large:
                self._large.submit(self._decode_large, work)
            else:
                self._decode(work)

    def _decode_large(self, work: Work) -> None:
        with self._answering([work]):
            self._decode(work)
        work.ended.wait()

    def _decode(self, work: Work) -> None:
        """Make of a request what the network takes."""
        work.require_wanted()
        self._gatherer.expect()
        try:
            work.spent("wait")
            image = decode_image(work.content, self._max_pixels)
            work.content = b""
            work.frame = Frame(image, "image")
            (work.view,) = work.detector.views(image)
            work.spent("decode")
        except BaseException:
            self._gatherer.miss()
            raise
        self._gatherer.add(work)

    def _run_lane(self) -> None:
        while batch := self._gatherer.take():
            wanted = self._wanted(batch)
            with self._answering(wanted):
                if wanted:
                    self._predict(wanted)

    def _wanted(self, batch: list[Work]) -> list[Work]:
        """Return those of a batch that are not given up; the others are answered."""
        wanted = []
        for work in batch:
            with self._answering([work]):
                work.require_wanted()
                wanted.append(work)
        return wanted

    def _predict(self, batch: list[Work]) -> None:
        for work in batch:
            work.spent("wait")
            work.batch = len(batch)
        found = batch[0].detector.predict([work.view for work in batch])
        for work, rows in zip(batch, found, strict=True):
            work.spent("network")
            work.rows = rows
            self._finishers.submit(self._finish, work)

    def _finish(self, work: Work) -> None:
        with self._answering([work]):
            work.require_wanted()
            work.spent("wait")
            detector, frame = work.detector, work.frame
            found = detector.finish([work.view], [work.rows])
            result = detector.result(frame, found, self._model.class_names).finite()
            if work.answer == "json":
                compared = compared_boxes(work, found)
                work.spent("finish")
                body = json_of(result, self._model.name, work.milliseconds, compared)
                media_type = MEDIA_TYPES["json"]
            else:
                body, media_type = picture_of(result, work.answer)
                work.spent("finish")
            told = {"milliseconds": work.milliseconds, "count": len(result), "batch": work.batch}
            self._end(work, {"status": "ok", "media_type": media_type, **told}, body)

    def _end(self, work: Work, header: dict[str, object], body: bytes = b"") -> None:
        del self._under_way[work.number]
        work.ended.set()
        self._link.send({"id": work.number, **header}, body)

    @contextmanager
    def _answering(self, works: list[Work], mistake: str = "failed") -> Iterator[None]:
        """Answer requests with what goes wrong in the block, and go on.

        mistake: the status of a UserError: of a request, or of the model.
        """
        try:
            yield
        except GivenUpError:
            self._refuse(works, "given_up", "nobody waits for the answer any more")
        except OSError:
            log.debug("the front process is gone")  # the thread that reads ends this process
        except (BrokenSourceError, BrokenImageError) as error:
            self._refuse(works, "bad_image", str(error))
        except UserError as error:
            self._refuse(works, mistake, str(error))
        except Exception:
            log.error("%s", traceback.format_exc())
            self._refuse(works, "failed", FAILED)

    def _refuse(self, works: list[Work], status: str, message: str) -> None:
        for work in works:
            self._end(work, {"status": status, "message": message})


def compared_boxes(work: Work, found: Any) -> np.ndarray | None:
    """Return what NMS compared, for a client that suppresses by itself: it asked for an IoU of 1.

    Returns:
        (K, 4) float32, pixels of the network's input, of what is found and has a place; else None.
    """
    if work.query.iou < 1:
        return None
    boxes = work.detector.predictor.head.compared_boxes(work.rows, work.detector.suppression)
    if boxes is None:
        return None
    return boxes[np.isfinite(found.boxes_xyxy).all(axis=1)].clip(-FURTHEST, FURTHEST)
