"""Files of tokens, and who may come in with one."""

import os

import pytest

from utils.errors import UserError
from utils.serve.failures import RequestError
from utils.serve.tokens import Tokens, read_tokens

TOKEN = "0123456789abcdef"


def test_the_tokens_of_a_file_let_in_and_others_do_not(tmp_path):
    (tmp_path / "tokens").write_text(f"  {TOKEN} \r\n\n{TOKEN}-2==\n")
    tokens = read_tokens(tmp_path / "tokens")
    tokens.require(f"Bearer {TOKEN}".encode())
    tokens.require(f"bearer   {TOKEN}-2== ".encode())
    for given in ("", TOKEN, f"Basic {TOKEN}", "Bearer", "Bearer ", f"Bearer {TOKEN}=", "Bearer é"):
        with pytest.raises(RequestError, match="Authorization: Bearer TOKEN") as caught:
            tokens.require(given.encode())
        assert caught.value.status == 401


def test_without_a_file_there_are_none():
    assert not read_tokens(None) and Tokens((TOKEN,))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no token"),
        (b"\n \n", "holds no token"),
        (b"0123456789abcde", "line 1: a token has 16 characters or more"),
        (b"0123456789abcdef\nsecret secret secret", "line 2: "),
        (b"\x1b[31m0123456789abcdef", "line 1: "),
        ("０１２３４５６７８９abcdef".encode(), "line 1: "),
        (b"\xff" * 20, "is no text in UTF-8"),
        (b"a" * (1 << 16) + b"b", "has 65,537 bytes; at most 65,536 are read"),
        (b"\0" * 20, "holds a null byte"),
    ],
)
def test_what_holds_no_tokens_is_refused_without_showing_it(tmp_path, content, words):
    (tmp_path / "tokens").write_bytes(content)
    with pytest.raises(UserError, match="`openssl rand -hex 32 > FILE` makes one") as caught:
        read_tokens(tmp_path / "tokens")
    assert words in str(caught.value)
    assert "secret" not in str(caught.value) and TOKEN not in str(caught.value)


def test_a_token_file_that_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("pipe", "is a FIFO"), ("", "is a folder"), ("none", "No such file")):
        with pytest.raises(UserError, match=words):
            read_tokens(tmp_path / name)
