"""The HTTP endpoints of the server."""

import asyncio
import base64
import hashlib
import json
import logging
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from http import HTTPStatus
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duet.utils.colours import hex_colours
from duet.utils.errors import brief
from duet.utils.files.regular import read_text
from duet.utils.project import PROJECT
from duet.utils.serve.config import ServeConfig
from duet.utils.serve.frames import Frame, Header
from duet.utils.serve.requests import (
    RequestError,
    Room,
    answer_kind,
    check_access,
    read_image,
    read_query,
)
from duet.utils.serve.worker import HELD, REQUEST_SECONDS, REQUESTS, Worker, count_answer
from duet.utils.text import printable

FOLDER = PROJECT / "utils" / "serve"
DETECT = "/v1/detect"
log = logging.getLogger("serve")


def make_app(config: ServeConfig, worker: Worker, tokens: Sequence[str]) -> Starlette:
    paths = Paths(config, worker)
    description = Response(read_text(FOLDER / "openapi.json"), media_type="application/json")
    routes = [
        Route("/", _page_response(), methods=["GET"]),
        Route("/healthz", JSONResponse({"status": "ok"}), methods=["GET"]),
        Route("/readyz", paths.readyz),
        Route("/metrics", paths.metrics),
        Route("/openapi.json", description, methods=["GET"]),
        Route("/v1/model", paths.about_models),
        Route(DETECT, paths.detect, methods=["POST"]),
    ]
    gate = Middleware(Gate, config=config, tokens=tokens, paths={route.path for route in routes})
    handlers: dict[Any, Any] = {HTTPException: _answer_error}
    return Starlette(routes=routes, middleware=[gate], exception_handlers=handlers)


class Paths:
    def __init__(self, config: ServeConfig, worker: Worker) -> None:
        self._config, self._worker = config, worker
        self._room = Room(config.max_queue * config.max_bytes)
        self._places = {one.name: asyncio.Semaphore(config.max_queue) for one in config.models}

    async def detect(self, request: Request) -> Response:
        query = read_query(request.query_params.multi_items())
        kind = answer_kind(request.headers.get("accept", ""))
        name = query.pop("model", self._config.models[0].name)
        record = request.scope["record"]
        header = {"model": name, "query": query, "answer": kind}
        self._place(name)  # refuse before the image is read
        with self._room.held() as take:
            image = await self._read(request, take)
            record["bytes"] = len(image)
            async with self._place(name):
                record["model"] = name
                with HELD.labels(name).track_inprogress():
                    header, body = await self._ask(header, image)
        if "refusal" in header:
            raise RequestError(*header["refusal"])
        record["count"], record["milliseconds"] = header["count"], dict(header["milliseconds"])
        count_answer(name, header)
        return Response(body, media_type=header["media_type"])

    async def _read(self, request: Request, take: Callable[[int], None]) -> bytes:
        """Return the image in a request, which takes no place in a queue while it arrives."""
        reading = read_image(request, self._config.max_bytes, take)
        with _time_limit(408, "request_timeout", "the image did not arrive in time"):
            return await asyncio.wait_for(reading, self._config.timeout)

    async def _ask(self, header: Header, image: bytes) -> Frame:
        with _time_limit(504, "timeout", "the model did not answer in time"):
            return await self._worker.ask(header, image, self._config.timeout)

    def _place(self, name: str) -> asyncio.Semaphore:
        """Return a model's queue; RequestError if it is full or the model is unknown."""
        if name not in self._places:
            text = f"unknown model {brief(name)}; accepted: {', '.join(map(brief, self._places))}"
            raise RequestError(404, "unknown_model", text)
        if self._places[name].locked():
            text = f"the queue is full ({self._config.max_queue} requests); try again later"
            raise RequestError(429, "queue_full", text, {"Retry-After": "1"})
        return self._places[name]

    async def readyz(self, request: Request) -> Response:
        if not self._worker.ready.is_set():
            text = "the models are still loading"
            raise RequestError(503, "starting", text, {"Retry-After": "2"})
        return JSONResponse({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    async def about_models(self, request: Request) -> Response:
        """Describe the models, once they are loaded, the default one first."""
        with _time_limit(504, "timeout", "the models are still loading"):
            await asyncio.wait_for(self._worker.ready.wait(), self._config.timeout)
        return JSONResponse({"models": self._worker.models})


@contextmanager
def _time_limit(status: int, code: str, message: str) -> Iterator[None]:
    """Turn a timeout or a lost worker in the block into a RequestError."""
    try:
        yield
    except asyncio.TimeoutError as error:
        text = f"{message}; send a smaller image, or try again later"
        raise RequestError(status, code, text) from error
    except ConnectionError as error:
        raise RequestError(503, "worker_lost", str(error), {"Retry-After": "2"}) from error


class Gate:
    """Middleware for every request: access control, request ID, log and metrics."""

    def __init__(
        self, app: ASGIApp, config: ServeConfig, tokens: Sequence[str], paths: set[str]
    ) -> None:
        self._app, self._config, self._tokens, self._paths = app, config, tokens, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, status = time.monotonic(), 0  # 0: the client disconnected before the answer
        path = scope["path"] if scope["path"] in self._paths else "other"  # it may hold anything
        record: dict[str, Any] = {"id": secrets.token_hex(8), "method": scope["method"]}
        scope["record"] = record | {"path": path}

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = record["id"]
            await send(message)

        try:
            name = None if self._tokens or self._config.insecure else self._config.host
            check_access(scope["path"], Headers(scope=scope), self._tokens, name)
            await self._app(scope, receive, answer)
        except RequestError as error:
            await (await _answer_error(Request(scope), error))(scope, receive, answer)
        except ClientDisconnect:
            scope["record"]["code"] = "client_gone"
        except Exception:
            log.exception("request %s:", record["id"])
            failure = RequestError(500, "internal", "internal server error; see the server's log")
            if not status:
                await (await _answer_error(Request(scope), failure))(scope, receive, answer)
        finally:
            seconds = time.monotonic() - started
            REQUESTS.labels(path, status).inc()
            REQUEST_SECONDS.labels(path).observe(seconds)
            log_request(scope["record"], status, seconds)


def log_request(record: Header, status: int, seconds: float) -> None:
    """Log a request as a line of JSON, or of words in a terminal, without the image's content."""
    if sys.stdout.isatty():
        found = f", {record['count']} found" if "count" in record else ""
        words = f"{record['method']} {record['path']} {status}{found}, {1000 * seconds:.0f} ms"
        return log.info("%s %s", time.strftime("%H:%M:%S"), words)
    stages = {**record.get("milliseconds", {}), "request": round(1000 * seconds, 2)}
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    log.info(json.dumps({"time": now, **record, "status": status, "milliseconds": stages}))


def _page_response() -> Response:
    """Return the web page, with a policy that allows only its own scripts and styles, by hash."""
    text = read_text(FOLDER / "page.html").replace("COLOURS_OF_CLASSES", " ".join(hex_colours()))
    policy = (
        f"default-src 'none'; script-src {_hash(text, 'script')}; style-src "
        f"{_hash(text, 'style')}; img-src blob: data:; media-src blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Response(text, media_type="text/html", headers={"Content-Security-Policy": policy})


def _hash(text: str, element: str) -> str:
    """Return the policy source that allows this exact element of the page."""
    part = text.partition(f"<{element}")[2].partition(">")[2].partition(f"</{element}>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'"


async def _answer_error(request: Request, error: HTTPException) -> Response:
    """Answer a refused request, including those Starlette refuses (unknown path, broken form)."""
    code = getattr(error, "code", HTTPStatus(error.status_code).name.lower())
    request.scope["record"]["code"] = code
    is_lost = code in ("not_found", "method_not_allowed")
    where = f"; POST {DETECT} takes an image, GET /openapi.json describes all" if is_lost else ""
    body = {"error": {"code": code, "message": f"{printable(error.detail)}{where}"}}
    return JSONResponse(body, error.status_code, error.headers)
