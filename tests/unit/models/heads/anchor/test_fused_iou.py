"""The fused complete IoU equals the plain formula in the loss, value and gradient."""

from __future__ import annotations

import numpy as np
import pytest

from duet.backend import autograd, fused, ops
from duet.models.heads.anchor.boxes import complete_iou
from duet.utils.data.loading.batch import Targets
from tests.losses import arrays_of
from tests.unit.models.heads.anchor.test_loss import NO_TARGETS, make_loss, raw_maps

SEVERAL_LEVELS = Targets(
    np.array([0, 1, 1]),
    np.array([2, 0, 1]),
    np.array([[0.3, 0.6, 0.2, 0.3], [0.7, 0.2, 0.9, 0.8], [0.5, 0.5, 0.3, 0.2]], np.float32),
)
LARGE_ONLY = Targets(np.array([0]), np.array([2]), np.array([[0.5, 0.5, 0.9, 0.9]], np.float32))


@pytest.mark.parametrize("targets", [SEVERAL_LEVELS, LARGE_ONLY, NO_TARGETS])
def test_the_loss_and_its_gradients_equal_the_plain_ones(targets):
    results = []
    for box_iou in (complete_iou, fused.complete_iou):
        maps = raw_maps(3)
        terms = make_loss(3, box_iou)(maps, targets)
        gradients = autograd.gradients(terms.total, maps)
        results.append([*arrays_of(terms).values(), *map(ops.to_numpy, gradients)])
    for found, wanted in zip(*results, strict=True):
        # float64 throughout.
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
