"""The memory that images take, from their first byte to their answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from utils.serve.failures import RequestError
from utils.serve.forms import ENVELOPE_BYTES
from utils.serve.record import Record
from utils.serve.uploads import WHOLE_UPLOADS, Uploads

MAX_BYTES = ENVELOPE_BYTES
PLACES = 2 * WHOLE_UPLOADS  # for a body of MAX_BYTES each: an upload may have an envelope as large


class Upload:
    """A request, as far as its body goes."""

    def __init__(self, *blocks: bytes, headers: dict[str, str] | None = None) -> None:
        self.blocks, self.headers = blocks, headers or {}

    async def stream(self) -> AsyncIterator[bytes]:
        for block in self.blocks:
            yield block


def record() -> Record:
    return Record("POST", "/v1/detect")


def test_images_count_until_they_are_answered() -> None:
    whole = Upload(bytes(MAX_BYTES // 2), bytes(MAX_BYTES // 2))

    async def hold() -> None:
        uploads = Uploads(MAX_BYTES, 10)
        for _ in range(2):  # all is free again after the first time
            async with AsyncExitStack() as stack:
                for _ in range(PLACES):
                    image = await stack.enter_async_context(uploads.image(whole, record()))
                    assert len(image) == MAX_BYTES
                with pytest.raises(RequestError) as caught:
                    await stack.enter_async_context(uploads.image(whole, record()))
                assert (caught.value.status, caught.value.code) == (429, "too_many_uploads")

    asyncio.run(hold())


@pytest.mark.parametrize(
    ("upload", "status", "came"),
    [
        (Upload(), 400, 0),
        (Upload(bytes(MAX_BYTES), b"a"), 413, MAX_BYTES),
        (Upload(headers={"content-length": str(MAX_BYTES + 1)}), 413, 0),
        (Upload(b"abc", headers={"content-type": "multipart/form-data"}), 400, 3),
    ],
    ids=["empty", "too large", "told too large", "form"],
)
def test_what_is_refused_counts_no_longer(upload: Upload, status: int, came: int) -> None:
    async def refuse() -> None:
        uploads = Uploads(MAX_BYTES, 10)
        for _ in range(2 * PLACES):
            told = record()
            with pytest.raises(RequestError) as caught:
                async with uploads.image(upload, told):
                    pass
            assert (caught.value.status, told.bytes) == (status, came)

    asyncio.run(refuse())
