"""Jobs of two ranks listen on the loopback only; one that fails or hangs leaves no process."""

import os
import re
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from duet import backend
from tests.distributed.conftest import Listener, listeners


def test_two_rank_job_listens_only_on_loopback(whole):
    assert whole.listeners, "no socket was seen, not even the framework's"
    exposed = {listener for listener in whole.listeners if listener.is_exposed}
    # Where the system refuses OneFlow's ranks a network of their own, a line says so.
    assert bool(exposed) == ("the ranks will listen on all interfaces" in whole.printed), exposed
    assert not exposed or backend.use() == "oneflow"


def test_socket_on_all_interfaces_is_detected():
    with socket.create_server(("", 0)) as server, socket.create_server(("127.0.0.1", 0)) as own:
        found = {listener.port: listener for listener in listeners(os.getpid())}
        assert found[server.getsockname()[1]].address == "0.0.0.0"
        assert not found[own.getsockname()[1]].is_exposed
    outside = frozenset({"lo", "eth0"})
    assert Listener("0.0.0.0", 1, outside).is_exposed and Listener("::", 1, outside).is_exposed
    assert not Listener("::ffff:127.0.0.1", 1, outside).is_exposed
    assert not Listener("::", 1, frozenset({"lo"})).is_exposed


# More than any step takes beside other work.
PATIENCE = ("--timeout", 6)
JOBS = {
    "defect": (
        ("--workers", 1),
        {"how": "raise_defect", "rank": 1, "phase": "training", "step": 3},
    ),
    "mistake of all": (("--batch", 5), {}),
    "hang": (PATIENCE, {"how": "stand_still", "rank": 1, "phase": "validation", "step": 1}),
}


@pytest.fixture(scope="module")
def running(runs) -> Iterator[dict[str, Future[tuple[int, str]]]]:
    """All jobs at once: they wait more than they compute."""
    with ThreadPoolExecutor(len(JOBS)) as pool:
        yield {
            name: pool.submit(lambda job: job.end(), runs.start(name, *flags, raw=True, **fault))
            for name, (flags, fault) in JOBS.items()
        }


def test_exception_of_one_rank_is_shown_and_ends_the_job(running):
    code, text = running["defect"].result()
    assert code == 1, text
    assert text.index("rank 1: Traceback") < text.index("RuntimeError: a defect")


def test_error_common_to_all_ranks_is_reported_once(running):
    code, text = running["mistake of all"].result()
    assert code == 1
    assert text.count("error: --batch-size 5 is the total over 2") == 1, text
    assert "rank 1: error" not in text


def test_stalled_rank_is_named_with_its_stack(running):
    code, text = running["hang"].result()
    assert code == 1, text
    still = r"rank 1 \(.*no progress for [67] s in validation, step \d \(--timeout 6\)"
    assert re.search(still, text), text
    assert "in stand_still" in text  # the stack
