"""Half precision changes values by its rounding alone, and says where there is none."""

import numpy as np
import pytest

import backend
from backend import amp, autograd, ops
from models.inference.predictors import HalfPrecision, why_not_half
from tests.golden_models import drawn_input, drawn_model

# Each layer rounds by up to 2^-11 or 2^-8; over 60 layers 8 times that was measured (root mean
# squares).
TOLERANCES = {"float16": 20 * 2**-11, "bfloat16": 20 * 2**-8}


@pytest.fixture(scope="module")
def model():
    return drawn_model("yolov5n.yaml", 1.8)


def maps(predictor, images):
    with autograd.no_grad():
        return predictor(ops.tensor(images))


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_maps_are_float32_and_near_those_of_float32(model, dtype):
    if dtype not in amp.supported("cpu"):
        pytest.skip(f"{backend.use()} has no {dtype} on a CPU")
    images = drawn_input([1, 3, 64, 96])
    plain, predictor = maps(model, images), HalfPrecision(model, "cpu", dtype)
    found = maps(predictor, images)
    for level, wanted in zip(found, plain, strict=True):
        assert ops.dtype_of(level) == "float32"
        expected = ops.to_numpy(wanted)
        error = (ops.to_numpy(level) - expected).std() / expected.std()
        assert 0 < error < TOLERANCES[dtype]
    rows = predictor.decode_above(found, 0.0)
    assert rows[0].dtype == np.float32
    assert rows[0].shape == model.decode_above(plain, 0.0)[0].shape


def test_a_cpu_detects_in_float32():
    assert why_not_half("cpu") == "a CPU detects in float32"
