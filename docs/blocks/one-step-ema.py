# Runs on torch and oneflow.
from duet import backend

backend.use()
from duet.models.training.ema import decay_after


def updates_until_halfway(start):
    """A weight jumps from 0 to 1: when does its average reach 0.5?"""
    average, update = 0.0, start
    while average < 0.5:
        update += 1
        decay = decay_after(update)
        average = decay * average + (1 - decay) * 1.0
    return update - start


values = {
    "late": f"{decay_after(100000):.4f}",
    "halfway_10000": updates_until_halfway(10000),
}
