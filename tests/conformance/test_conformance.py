"""Judges the backend that YOLO_BACKEND names against its contract."""

import pytest

from tests.conformance.judging import Backend, Check, checks_of


@pytest.mark.parametrize(
    "check", checks_of(Backend().trains), ids=lambda check: f"{check.name}-{check.label}"
)
def test_backend_keeps_its_promise(check: Check) -> None:
    check.run(Backend())
