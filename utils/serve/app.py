"""The paths of a server, and what each answers.

Before: `gate.py`. After: `worker_process.py` with each image.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from functools import cached_property
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException

from utils.cli.serve_config import ServeConfig
from utils.errors import UserError, WorkerError
from utils.serve import documentation
from utils.serve.accepting import answer_kind
from utils.serve.failures import RequestError, bad_request
from utils.serve.gate import INTERNAL
from utils.serve.image_checks import bad_image, checked_size, is_quick
from utils.serve.messages import LARGE_PIXELS, Answer, BadImageError, WorkerLostError
from utils.serve.metrics import MEDIA_TYPE, Metrics
from utils.serve.page import read_page
from utils.serve.queries import default_query, read_query, require_classes, require_detections
from utils.serve.record import Record
from utils.serve.served import ServedModels
from utils.serve.uploads import GoneError, Uploads

JSON = "application/json"
_NO_TELEMETRY: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "auto_configure": False,  # by variables of the environment
}
_CLIENT_GONE = 499  # in the log and the metrics alone: nobody receives it


class Paths:
    """What answers requests."""

    def __init__(self, config: ServeConfig, models: ServedModels, metrics: Metrics) -> None:
        self._models, self._metrics = models, metrics
        self._defaults = default_query(config)
        self._timeout, self._max_pixels = config.timeout, config.max_pixels
        self._uploads = Uploads(config.max_bytes, config.timeout)
        self._page = read_page()
        self.app = self._make_app()

    def _make_app(self) -> FastAPI:
        handlers: dict[Any, Any] = {
            RequestError: _answer_error,
            HTTPException: _answer_http_error,
            GoneError: _answer_nobody,
            Exception: _answer_defect,
        }
        app = FastAPI(
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            telemetry=_NO_TELEMETRY,
            exception_handlers=handlers,
            **documentation.ABOUT,
        )
        for path, answer in {
            "/": self.page,
            "/healthz": self.healthz,
            "/readyz": self.readyz,
            "/metrics": self.metrics,
            "/v1/model": self.about_models,
            "/openapi.json": self.openapi,
        }.items():
            app.add_api_route(path, answer, response_model=None, **documentation.PATHS[path])
        app.add_api_route(
            documentation.DETECT,
            self.detect,
            methods=["POST"],
            response_model=None,
            **documentation.PATHS[documentation.DETECT],
        )
        return app

    async def detect(self, request: Request) -> Response:
        """Answer an image with what a model finds in it."""
        record: Record = request.scope["record"]
        asked = read_query(request.scope["query_string"], self._defaults)
        kind = answer_kind(request.headers.get("accept", ""))
        model = self._models.find(asked.model)
        record.model = model.name
        require_detections(asked.query, model.worker.model["task"])
        require_classes(asked.query, len(model.worker.model["class_names"]))
        model.line.require_place()  # before the image is read
        async with self._uploads.image(request, record) as image:
            height, width = await self._size_of(image)
            record.pixels = height * width
            is_large = record.pixels > LARGE_PIXELS
            with model.line.place():
                detecting = model.worker.detect(image, asked.query, kind, is_large)
                answer = await self._in_time(request, detecting)
        record.count, record.milliseconds = answer.count, answer.milliseconds
        self._metrics.count_answer(model.name, answer)
        return Response(answer.body, media_type=answer.media_type)

    async def _size_of(self, image: bytes) -> tuple[int, int]:
        """Return (height, width); a slow image does not delay other requests."""
        if is_quick(image):  # a thread takes a third of a request's time here
            return checked_size(image, self._max_pixels)
        return await asyncio.to_thread(checked_size, image, self._max_pixels)

    async def _in_time(self, request: Request, answer: Awaitable[Answer]) -> Answer:
        """Return an answer; drop the work after the timeout, or if nobody waits for it any more."""
        work = asyncio.ensure_future(answer)
        gone = asyncio.ensure_future(_until_gone(request))
        try:
            await asyncio.wait(
                {work, gone}, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if work.done():
                return work.result()
            if gone.done():
                raise GoneError
        except BadImageError as error:
            raise bad_image(str(error)) from error
        except UserError as error:
            raise bad_request(str(error)) from error
        except WorkerLostError as error:
            raise RequestError(503, "worker_lost", str(error), {"Retry-After": "2"}) from error
        except WorkerError as error:
            raise RequestError(500, "failed", str(error)) from error
        finally:
            work.cancel()
            gone.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await work
        raise RequestError(
            504,
            "timeout",
            f"no answer in {self._timeout:g} seconds, and the work is dropped; try again later, "
            "or send a smaller image",
        )

    async def page(self) -> Response:
        """Show the page on which models can be tried."""
        return Response(self._page.content, media_type="text/html", headers=self._page.headers)

    async def healthz(self) -> Response:
        """Answer that the process is alive."""
        return JSONResponse({"status": "ok"})

    async def readyz(self) -> Response:
        """Answer whether every model can answer."""
        if self._models.is_ready:
            return JSONResponse({"status": "ready"})
        if self._models.is_ending:
            raise RequestError(503, "ending", "the server is ending")
        raise RequestError(503, "starting", "a model is being started", {"Retry-After": "2"})

    async def metrics(self) -> Response:
        """Tell Prometheus what was counted."""
        return Response(self._metrics.text(), media_type=MEDIA_TYPE)

    async def about_models(self) -> Response:
        """Tell of all models, the default one first."""
        return JSONResponse({"models": [model.about(self._defaults) for model in self._models.all]})

    async def openapi(self) -> Response:
        """Describe all paths."""
        task = self._models.all[0].worker.model.get("task", "")
        return JSONResponse(documentation.with_example(self._described, task))

    @cached_property
    def _described(self) -> dict[str, Any]:
        return self.app.openapi()


async def _until_gone(request: Request) -> None:
    """Return when the client has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _answer_error(request: Request, error: RequestError) -> Response:
    request.scope["record"].code = error.code
    return Response(error.body, error.status, error.headers, JSON)


async def _answer_http_error(request: Request, error: HTTPException) -> Response:
    """Answer a request for a path or a method that does not exist."""
    headers = dict(error.headers or {})
    if error.status_code == 405:
        text = f"this path does not answer {request.scope['method']:.20}"
        text += f"; accepted: {headers.get('Allow', '')}; /openapi.json lists all"
        found = RequestError(405, "method_not_allowed", text, headers)
    else:
        found = RequestError(
            error.status_code, "not_found", "there is nothing at this path; /openapi.json lists all"
        )
    return await _answer_error(request, found)


async def _answer_nobody(request: Request, error: GoneError) -> Response:
    request.scope["record"].code = "client_gone"
    return Response(status_code=_CLIENT_GONE)


async def _answer_defect(request: Request, error: Exception) -> Response:
    request.scope["record"].code = "internal"
    return Response(INTERNAL, 500, media_type=JSON)
