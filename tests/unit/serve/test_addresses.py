"""Where a server may listen."""

import socket
from pathlib import Path

import pytest

from utils.cli.serve_config import ServeConfig
from utils.errors import UserError
from utils.serve.addresses import address_of, listening_socket


def config(host: str, **options) -> ServeConfig:
    return ServeConfig(weights=("x",), host=host, **{"port": 0, **options})


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_the_loopback_needs_nothing_and_a_free_port_is_told(host):
    with listening_socket(config(host)) as listener:
        address, port = listener.getsockname()
        assert port and address_of(listener) == f"http://{address}:{port}"
        # asyncio then switches Nagle's waiting off; with it an answer takes 40 ms more.
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1"])
def test_other_addresses_need_tokens_or_a_word(host):
    with pytest.raises(UserError, match="nobody would need a token; give --token-file, or --inse"):
        listening_socket(config(host))


@pytest.mark.parametrize("options", [{"insecure": True}, {"token_file": Path("tokens")}])
def test_all_addresses_are_told_as_one_that_a_browser_can_open(options):
    with listening_socket(config("0.0.0.0", **options)) as listener:
        assert address_of(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    ("host", "options", "words"),
    [
        ("nowhere.invalid", {}, "no address has this name; 127.0.0.1 is only this machine"),
        ("a" * 300, {}, "no address has this name"),
        ("\x1b[31m", {}, "'\\x1b[31m': no address"),
        ("192.0.2.1", {"insecure": True}, "this machine has no such address"),
    ],
)
def test_an_address_that_is_not_there_is_refused(host, options, words):
    with pytest.raises(UserError) as caught:
        listening_socket(config(host, **options))
    assert words in str(caught.value)


def test_a_port_that_is_taken_is_refused_with_the_next_step():
    with listening_socket(config("127.0.0.1")) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UserError, match=f"--port {port}: another program listens there; give"):
            listening_socket(config("127.0.0.1", port=port))
