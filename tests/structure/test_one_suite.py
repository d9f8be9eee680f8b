"""Tests that one suite alone runs: together both run every file."""

from __future__ import annotations

import itertools

import pytest

from duet.backend.select import ENVIRONMENT_VARIABLE
from tests.one_suite import OF_BOTH, OF_NONE, SIDE_BY_SIDE, TESTS, left_out


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("side_by_side", ["", "1"])
def test_every_file_runs_in_one_of_the_suites_at_least(side_by_side, chosen):
    torch, oneflow = (
        left_out({ENVIRONMENT_VARIABLE: backend, SIDE_BY_SIDE: side_by_side}, chosen)
        for backend in ("torch", "oneflow")
    )
    assert torch & oneflow == set()
    assert all(path.exists() for path in torch | oneflow)
    once = {TESTS / path for path in itertools.chain(*OF_NONE.values())}
    assert bool(once & (torch | oneflow)) is bool(side_by_side and not chosen)
    assert {TESTS / path for path in itertools.chain(*OF_BOTH.values())} <= torch | oneflow
