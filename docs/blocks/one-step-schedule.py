# Runs without a framework.
from duet.models.training.optimizer import Schedule
from duet.utils.cli.hyperparameters import (
    DEFAULT_HYPERPARAMETERS,
    read_hyperparameters,
)

hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
schedule = Schedule(
    hyp, epochs=100, batches_per_epoch=50, batch_size=16, cosine=False
)

values = {
    "accumulate": schedule.accumulate,
    "first_bias_rate": schedule.at(0).bias_rate,
    "rate": hyp.lr0,
    "last_rate": hyp.lr0 * hyp.lrf,
}
