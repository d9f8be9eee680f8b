"""Stages are timed by the device's marks, which are read long after they were set."""

import itertools

import backend
from utils.report.stage_timer import STAGES, UNREAD_STAGES, StageTimer


def test_marks_are_read_late_and_none_is_lost(monkeypatch):
    clock, read = itertools.count(), []
    monkeypatch.setattr(backend.device, "mark", lambda device: next(clock))
    monkeypatch.setattr(
        backend.device, "seconds_between", lambda start, end: read.append(end) or end - start
    )
    timer = StageTimer("cpu")
    for _ in range(UNREAD_STAGES):
        with timer("forward"):
            pass
    assert read == []
    with timer("backward"):
        next(clock)
    assert read == [1]  # the oldest stage alone, which a device has long done
    assert timer.seconds["forward"] == UNREAD_STAGES
    assert timer.seconds["backward"] == 2
    assert timer.seconds["forward"] == UNREAD_STAGES  # reading twice adds nothing


def test_a_timer_goes_on_from_the_stages_of_another_version():
    timer = StageTimer("cpu", {"total": 9.0, "forward": 2.0, "of_another_version": 1.0})
    assert timer.total() >= 9
    assert timer.seconds == dict.fromkeys(STAGES, 0.0) | {"forward": 2.0}
