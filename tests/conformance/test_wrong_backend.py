"""Every mistake of the wrong backend must be rejected by the checks."""

from __future__ import annotations

import pytest

from tests.conformance.all_checks import CHECKS
from tests.conformance.judging import Backend, Check, promised_names
from tests.conformance.wrong import (  # noqa: F401
    wrong_adam,
    wrong_amp,
    wrong_attention,
    wrong_detection,
    wrong_dist,
    wrong_fused,
    wrong_images,
    wrong_multi_tensor,
    wrong_nn,
    wrong_ops,
    wrong_tensor,
    wrong_training,
)
from tests.conformance.wrong.registry import WRONG, Wrong


def rejects(check: Check, backend: Backend) -> bool:
    try:
        check.run(backend)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: f"{wrong.name} {wrong.mistake}")
def test_a_mistake_is_rejected(wrong: Wrong) -> None:
    backend = wrong.applied(Backend())
    assert any(rejects(check, backend) for check in CHECKS if check.name == wrong.name)


def test_every_promised_name_has_a_check_and_a_wrong_version() -> None:
    assert {check.name for check in CHECKS} == promised_names()
    assert {wrong.name for wrong in WRONG} == promised_names()


def test_the_optimizers_that_mistakes_are_made_from_are_right() -> None:
    right = Backend()
    backend = right.replaced("optim", "SGD", wrong_training.sgd(right))
    for name in ("Adam", "AdamW"):
        backend = backend.replaced("optim", name, wrong_adam.adam(right, name == "AdamW"))
    for check in CHECKS:
        if check.name.startswith(("optim.", "Optimizer.")):
            check.run(backend)
