"""Which --img a model takes, in training and in validation."""

import pytest

from models.detector import require_image_size
from utils.errors import UserError


@pytest.mark.parametrize(
    ("image_size", "message"),
    [
        (33, "--img 33 is no multiple of the model's stride 32; use 64"),
        (63, "--img 63 is no multiple of the model's stride 32; use 64"),
        (650, "--img 650 is no multiple of the model's stride 32; use 672"),
    ],
)
@pytest.mark.parametrize("trains", [True, False])
def test_other_than_multiples_of_the_stride_are_refused(image_size, message, trains):
    with pytest.raises(UserError, match=message):
        require_image_size(image_size, 32, trains)
    require_image_size(int(message.split()[-1]), 32, trains)


@pytest.mark.parametrize("stride", [32, 64])
def test_a_single_cell_is_too_few_to_train_on_and_enough_to_validate(stride):
    with pytest.raises(UserError, match=f"--img {stride} .*BatchNorm.*; use {2 * stride}"):
        require_image_size(stride, stride, trains=True)
    require_image_size(stride, stride, trains=False)
    require_image_size(2 * stride, stride, trains=True)
