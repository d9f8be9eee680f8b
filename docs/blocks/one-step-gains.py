# --8<-- [start:page]
# Runs on torch and oneflow.
from duet import backend

backend.use()
from duet.models.heads.anchor.balance import LEVEL_BALANCE
from duet.utils.cli.hyperparameters import (
    DEFAULT_HYPERPARAMETERS,
    read_hyperparameters,
)

hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
print("side  classes      box  objectness  classification")
for side, classes in ((640, 80), (320, 80), (640, 5)):
    gains = hyp.loss_gains().scaled(
        num_levels=3, num_classes=classes, image_size=side
    )
    print(
        f"{side:4}{classes:9}{gains.box:9.3f}{gains.objectness:12.3f}"
        f"{gains.classification:16.3f}"
    )  # fmt: skip
# --8<-- [end:page]

from duet.models.training.state import GRADIENT_NORM_LIMIT

fine, middle, coarse = LEVEL_BALANCE[3]
values = {
    "fine": fine,
    "middle": middle,
    "coarse": coarse,
    "side_ratio": f"{hyp.anchor_t:g}",
    "images": f"{hyp.nbs:g}",
    "norm": f"{GRADIENT_NORM_LIMIT:g}",
}
