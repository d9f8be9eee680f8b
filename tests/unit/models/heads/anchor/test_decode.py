"""What raw numbers mean."""

import math

import pytest

from models.heads.anchor.decode import logit


def test_a_logit_undoes_the_sigmoid_and_is_minus_infinity_from_zero_down():
    assert 1 / (1 + math.exp(-logit(0.3))) == pytest.approx(0.3)
    assert logit(0.5) == 0
    assert logit(0.0) == logit(-1e-6) == -math.inf  # thresholds less a rounding
