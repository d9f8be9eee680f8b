"""Training steps on one batch, again and again: what the doctor times.

Before: `doctor.py` chose the framework. After: it counts the images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import backend
from models.training.start import build_model
from models.training.state import build_state
from models.training.step import train_step
from models.training.threads import choose_step_threads
from utils.cli.hyperparameters import read_hyperparameters
from utils.cli.train_config import TrainConfig
from utils.data.loading.batch import Batch
from utils.data.loading.items import Items
from utils.data.loading.loader import TrainLoader
from utils.data.sources.samples import Sample
from utils.report.stage_timer import StageTimer
from utils.screen.text import say
from utils.state.checkpoint import Checkpoint
from utils.state.job import batch_recipe


def measure_steps(
    config: TrainConfig,
    start: Checkpoint | None,
    class_names: Sequence[str],
    samples: Sequence[Sample],
    items: Items,
    device: str,
) -> Iterator[Batch]:
    """Train on the first batch without end; yield it each time the device is done with it.

    Args:
        start: weights to begin with.
        samples: of which the batch is made, by `items`.
    """
    hyp = read_hyperparameters(config.hyp, config.override)
    size, count, augment = config.image_size, config.batch_size, config.augmentation(hyp)
    model = build_model(config, start, class_names)
    choose_step_threads(config, model.spec, device, ranks=1)
    recipe = batch_recipe(config)
    with TrainLoader(
        samples, size, count, augment, config.seed, 0, recipe=recipe, items=items
    ) as loader:
        loader.align(model.stride)
        state = build_state(config, hyp, model, len(loader), device)
        batch = next(loader.epoch(0))
    say(backend.device.describe(device))
    while True:
        train_step(state, batch, StageTimer(device))
        backend.device.synchronize(device)
        yield batch
