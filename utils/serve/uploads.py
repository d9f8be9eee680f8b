"""The bodies of requests, read within bounds of size, time and memory.

Before: a connection. After: `forms.py` if it is a form, `image_checks.py` looks at the image.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from utils.serve.failures import RequestError, bad_request
from utils.serve.forms import ENVELOPE_BYTES, image_of_form, is_form
from utils.serve.record import Record

WHOLE_UPLOADS = 16  # so many of the largest size may be on their way at a time


class GoneError(Exception):
    """The client has closed the connection; nobody waits for an answer."""


class Uploads:
    """Images from their first byte to their answer; together they take a bounded amount of memory.

    A body counts with the bytes that have come, so that slow senders do not block others.
    """

    def __init__(self, max_bytes: int, timeout: float) -> None:
        self._max_bytes, self._timeout = max_bytes, timeout
        self._held, self._most = 0, WHOLE_UPLOADS * (max_bytes + ENVELOPE_BYTES)

    @asynccontextmanager
    async def image(self, request: Request, record: Record) -> AsyncIterator[bytes]:
        """Yield the bytes of the image file in a request, which count until the end of the block.

        Raises:
            RequestError: it is too large, comes too slowly, or is no form though it says so.
            GoneError: the client has gone.
        """
        record.bytes = 0
        try:
            yield await self._read_image(request, record)
        finally:
            self._held -= record.bytes

    async def _read_image(self, request: Request, record: Record) -> bytes:
        content_type = request.headers.get("content-type", "")
        form = is_form(content_type)
        body = await self._read(request, self._max_bytes + ENVELOPE_BYTES * form, record)
        image = image_of_form(content_type, body) if form else body
        if len(image) > self._max_bytes:
            raise self._too_large()
        if not image:
            raise bad_request("the body is empty; send an image file, as in --data-binary @FILE")
        return image

    async def _read(self, request: Request, most: int, record: Record) -> bytes:
        length = _told_length(request.headers)
        if length is not None and length > most:
            raise self._too_large()
        body = bytearray()
        try:
            await asyncio.wait_for(self._fill(body, request, record, most), self._timeout)
        except (asyncio.TimeoutError, TimeoutError) as error:
            raise RequestError(
                408,
                "request_timeout",
                f"{len(body):,} bytes came in {self._timeout:g} seconds, which is not all of "
                "the image; send it faster, or make it smaller",
            ) from error
        except ClientDisconnect as error:
            raise GoneError from error
        return bytes(body)

    async def _fill(self, body: bytearray, request: Request, record: Record, most: int) -> None:
        async for block in request.stream():
            if len(body) + len(block) > most:
                raise self._too_large()
            if self._held + len(block) > self._most:
                text = "too many large images are here at once; try again later"
                raise RequestError(429, "too_many_uploads", text, {"Retry-After": "1"})
            body += block
            record.bytes = len(body)
            self._held += len(block)

    def _too_large(self) -> RequestError:
        return RequestError(
            413,
            "too_large",
            f"the image file is larger than {self._max_bytes:,} bytes; make it smaller, or raise "
            "--max-bytes of the server",
        )


def _told_length(headers: Mapping[str, str]) -> int | None:
    """Return the Content-Length, which the HTTP library has checked; None if there is none."""
    text = headers.get("content-length")
    return None if text is None else int(text)
