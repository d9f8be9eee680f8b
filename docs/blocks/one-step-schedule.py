# --8<-- [start:page]
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

print("batch   biases  weights  momentum  batches per update")
for batch in (0, 50, 100, 150, 151, 2500, 4999):
    now = schedule.at(batch)
    rates = f"{now.bias_rate:9.5f}{now.weight_rate:9.5f}"
    print(f"{batch:5}{rates}{now.momentum:10.3f}{now.accumulate:8}")
# --8<-- [end:page]

values = {
    "warmup": schedule.warmup_batches,
    "accumulate": schedule.accumulate,
    "first_bias_rate": schedule.at(0).bias_rate,
    "rate": hyp.lr0,
    "last_rate": hyp.lr0 * hyp.lrf,
}
