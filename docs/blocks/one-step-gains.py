# Runs on torch and oneflow.
from duet import backend

backend.use()
from duet.models.heads.anchor.loss import LEVEL_BALANCE
from duet.models.training.step import GRADIENT_NORM_LIMIT
from duet.utils.cli.hyperparameters import (
    DEFAULT_HYPERPARAMETERS,
    read_hyperparameters,
)

hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
fine, middle, coarse = LEVEL_BALANCE[3]
values = {
    "fine": fine,
    "middle": middle,
    "coarse": coarse,
    "side_ratio": f"{hyp.anchor_t:g}",
    "images": f"{hyp.nbs:g}",
    "norm": f"{GRADIENT_NORM_LIMIT:g}",
}
