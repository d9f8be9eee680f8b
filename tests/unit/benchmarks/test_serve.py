"""benchmarks.serve: what a client sees of a server, and the figures made of it."""

import socket

from benchmarks.serve import Load, ask, send


def test_accepted_refused_and_lost_requests_are_counted_apart():
    load = Load(2.0, [(200, 0.1), (200, 0.3), (429, 0.001), (0, 0.5), (503, 0.1)])
    assert load.rate == 1.0
    assert load.words() == (
        "5 requests in 2.0 s: 2 answered, 1.0 a second; latency median 200 ms, p99 298 ms; "
        "1 refused, 2 lost"
    )


def test_a_server_that_is_not_there_loses_each_request():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert send(port, b"image") == 0
    load = ask(port, [b"image"], seconds=0.2, rate=50)
    assert [status for status, _ in load.seen] == [0] * 10
