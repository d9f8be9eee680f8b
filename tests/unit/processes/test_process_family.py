"""utils/processes/process_family.py: a process that is asked to end while it waits for others."""

import os
import signal

import pytest

from utils.processes.process_family import ending_after_sigterm
from utils.processes.suspend import listening


@pytest.fixture(autouse=True)
def no_alarm():
    yield
    assert signal.alarm(0) == 0


def test_sigterm_in_the_block_is_a_request_to_suspend_after_it():
    with listening("", None) as stop:
        with ending_after_sigterm(stop.was_terminated):
            os.kill(os.getpid(), signal.SIGTERM)
            assert not stop.was_terminated
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 10  # the end, from the kernel
        assert stop.was_terminated


def test_sigterm_before_the_block_bounds_it_too():
    with listening("", None) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with ending_after_sigterm(stop.was_terminated):
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 10
        assert stop.was_terminated


def test_without_sigterm_nothing_is_bounded_and_a_later_one_is_noticed():
    with listening("", None) as stop:
        with ending_after_sigterm(stop.was_terminated):
            assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
        assert not stop.was_terminated
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.was_terminated
