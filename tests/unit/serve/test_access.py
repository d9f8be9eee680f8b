"""Tokens, and who needs one."""

import os

import pytest

from duet.utils.errors import UserError
from duet.utils.serve.requests import read_tokens
from tests.unit.serve.conftest import TOKENS
from tests.unit.serve.running import DETECT, image_file


@pytest.mark.parametrize(
    "content", [b"", b"\n \n", b"short\n", b"0123456789abcdef\nsecret token 1234567\n",
                "0123456789abcdeé".encode(), b"\xff" * 20, b"a" * (1 << 17)]
)  # fmt: skip
def test_a_file_without_tokens_is_refused_and_not_shown(tmp_path, content):
    (tmp_path / "tokens").write_bytes(content)
    with pytest.raises(UserError, match="create one with `openssl rand -hex 32 > FILE`") as caught:
        read_tokens(tmp_path / "tokens")
    assert "secret" not in str(caught.value) and "0123456789" not in str(caught.value)


def test_a_token_file_that_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("pipe", "is a FIFO"), ("", "is a folder"), ("none", "No such file")):
        with pytest.raises(UserError, match=words):
            read_tokens(tmp_path / name)


def test_a_token_is_needed_and_each_of_the_file_is_taken(guarded):
    image = image_file()
    for word in ("", "Bearer", "Bearer wrong-0123456789", f"Basic {TOKENS[0]}",
                 f"Bearer {TOKENS[0]}x"):  # fmt: skip
        reply = guarded.ask(DETECT, image, {"Authorization": word} if word else {})
        assert reply.error == (401, "unauthorized")
        assert reply.headers["www-authenticate"] == "Bearer"
    for token in TOKENS:
        headers = {"Authorization": f"bearer {token}", "Host": "detector.example"}
        assert guarded.ask(DETECT, image, headers).status == 200
    for path, status in (("/", 200), ("/healthz", 200), ("/readyz", 200), ("/metrics", 401),
                         ("/v1/model", 401), ("/nothing", 401)):  # fmt: skip
        assert guarded.ask(path).status == status
    assert not any(token in line for line in guarded.seen for token in TOKENS)
