"""Where a server listens, and why an address may be refused.

Before: `__main__.py`. After: `service.py`, with the open socket.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket

from utils.cli.serve_config import ServeConfig
from utils.errors import UserError, brief

BACKLOG = 512  # connections that wait to be accepted, and that are accepted in one turn


def listening_socket(config: ServeConfig) -> socket.socket:
    """Return a socket that listens where flags say.

    Raises:
        UserError: the address is not of this machine, may not be opened without tokens, or the port
            is taken.
    """
    family, address = _resolve(config.host, config.port)
    if not is_loopback(address[0]) and config.token_file is None and not config.insecure:
        raise UserError(
            f"--host {config.host} can be reached from other machines, and nobody would need a "
            "token; give --token-file, or --insecure if whoever reaches it may use it"
        )
    # With the protocol named, asyncio sends at once: without it an answer waited 40 ms for the
    # acknowledgement of its head.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise UserError(_refusal(config, error)) from error
    listener.setblocking(False)
    return listener


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        with contextlib.suppress(ValueError):  # no number
            host = str(ipaddress.ip_address(host.strip("[]")))
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UserError(
            f"--host {brief(host)}: no address has this name; 127.0.0.1 is only this machine, "
            "0.0.0.0 all of its addresses"
        ) from error
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, (str(address[0]), port)


def _refusal(config: ServeConfig, error: OSError) -> str:
    place = f"--host {config.host} --port {config.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{place}: another program listens there; give another --port, or 0 for a free one"
    if error.errno == errno.EACCES:
        return f"{place}: this user may not listen there; give a --port from 1024 up"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{place}: this machine has no such address; 127.0.0.1 is only this machine"
    return f"{place}: {error.strerror}"


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches a numerical address."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def address_of(listener: socket.socket) -> str:
    """Return the address for a browser on this machine."""
    host, port = listener.getsockname()[:2]
    if ipaddress.ip_address(host.partition("%")[0]).is_unspecified:
        host = "127.0.0.1" if listener.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
