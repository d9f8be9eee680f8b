"""Every mistake of the wrong backend must be rejected by the checks."""

import pytest

from tests.conformance.judging import WRONG, Backend, Check, Wrong, all_checks, promised_names
from tests.conformance.wrong import wrong_nn  # noqa: F401


def rejects(check: Check, backend: Backend) -> bool:
    try:
        check.run(backend)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong.name} {wrong.mistake}")
def test_each_mistake_is_rejected(wrong: Wrong) -> None:
    backend = wrong.applied(Backend())
    assert any(rejects(check, backend) for check in all_checks() if check.name == wrong.name)


def test_every_promise_has_a_check_and_a_wrong_version() -> None:
    assert {check.name for check in all_checks()} == promised_names()
    assert {wrong.name for wrong in WRONG} == promised_names()
