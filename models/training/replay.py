"""One batch of a run once more: where do its numbers stop being finite?

Before: `train.py --replay EPOCH:STEP`, as the line about a skipped update names the batch. A batch
is a function of (seed, epoch, sample indices), so the run's other flags make it again exactly.
The weights are those of the checkpoint: of the end of an epoch, so some steps away from those
that the batch met.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

import numpy as np

from backend import amp, autograd, nn, ops
from backend.contract import Tensor
from backend.words import count
from models.detector import Detector
from models.training.loss_scale import NO_SCALE
from models.training.pieces import network_images, pass_images
from models.training.state import TrainState
from models.training.step_watch import BatchName
from utils.cli.document import as_document
from utils.cli.hyperparameters import read_hyperparameters
from utils.cli.train_config import TrainConfig
from utils.data.loading.batch import Batch
from utils.data.loading.loader import TrainLoader
from utils.errors import UserError
from utils.report.stage_timer import StageTimer
from utils.state.checkpoint import Checkpoint

# Settings on which the batch, and what it costs, depend.
DECIDING = (
    "data", "image_size", "batch_size", "seed", "rect", "quad", "multi_scale", "single_class",
    "image_weights", "repeat_factor", "fraction", "close_mosaic", "epochs", "albumentations",
    "max_pixels", "mask_ratio", "no_overlap", "dropout", "label_smoothing", "mosaic_window",
)  # fmt: skip
ANY_LIMIT = 1.0  # of the gradient norm: only the norm before is looked at

log = logging.getLogger("train")


def replay(config: TrainConfig, state: TrainState, start: Checkpoint, loader: TrainLoader) -> None:
    """Run the forward and backward pass of the batch that --replay names, and log what they give.

    Raises:
        UserError: an epoch that the run does not have, a step that an epoch of these images does
            not have, weights of another model.
    """
    epoch, step = config.replayed()
    epochs = start.header.settings.get("epochs", config.epochs)
    if epoch > epochs:
        has = count(epochs, "epoch")
        raise UserError(f"--replay {config.replay}: the run of these weights has {has}")
    if step > len(loader):
        raise UserError(
            f"--replay {config.replay}: an epoch has {count(len(loader), 'step')} of "
            f"{count(config.batch_size, 'image')}"
        )
    for line in differences(config, start):
        log.warning("--replay: %s", line)
    try:
        nn.load_state_arrays(state.model, start.model)
    except ValueError as error:
        raise UserError(f"--replay needs --weights of the run itself: {error}") from error
    if state.loss_scale.adapts and start.header.loss_scale != NO_SCALE:
        state.loss_scale.value = start.header.loss_scale
    state.batch_number = (epoch - 1) * len(loader) + step - 1
    scores = start.header.progress.get("class_scores", ())
    if len(scores) not in (0, state.model.head.num_classes):
        raise UserError(f"--replay needs --weights of the run itself: {len(scores)} class scores")
    batch = loader.batch(epoch - 1, step - 1, scores)
    log.info("%s", BatchName(epoch, step, batch.sample_indices))
    for line in examine(state, batch):
        log.info("%s", line)


def differences(config: TrainConfig, start: Checkpoint) -> Iterator[str]:
    """Yield each setting of the batch, or of its loss, that the checkpoint's run had otherwise."""
    given, trained = as_document(config), start.header.settings
    for name in DECIDING:
        if name in trained and trained[name] != given[name]:
            yield f"{name} is {given[name]}, but the weights come from a run with {trained[name]}"
    if config.image_weights and start.header.epoch != config.replayed()[0] - 1:
        yield (
            "--image-weights chose the images by the validation before the epoch; the weights are "
            f"of epoch {start.header.epoch}, so that these may be other images"
        )
    hyp = as_document(read_hyperparameters(config.hyp, config.override))
    for name, value in start.header.hyperparameters.items():
        if value != hyp.get(name):
            yield f"--hyp has {name}: {hyp.get(name)}, but the weights come from a run with {value}"


def examine(state: TrainState, batch: Batch) -> Iterator[str]:
    """Yield what one step computes, line by line."""
    images = network_images(state, batch)
    state.model.head.draw(pass_images(state, batch, 0, len(batch.images)))
    weight = first_not_finite(nn.state_tensors(state.model).items())
    yield f"weights: {weight or 'all finite'}"
    with autograd.no_grad(), amp.autocast(state.execution.device, state.execution.autocast_dtype):
        layer = first_not_finite(layer_outputs(state.model, images))
    yield f"layers: {layer or 'all finite'}"
    timer = StageTimer(state.execution.device)
    terms = autograd.value_and_backward(
        state.forward, state.step_loss, images, batch.targets, timer
    )
    losses = np.array([float(ops.to_numpy(term)) for term in terms.by_name.values()])
    yield f"losses: {state.watch.describe(losses)}"
    parameters = dict(nn.named_parameters(state.model))
    state.loss_scale.unscale(parameters.values())
    gradients = ((name, x.grad) for name, x in parameters.items() if x.grad is not None)
    yield f"gradients: {first_not_finite(gradients) or 'all finite'}"
    norm = float(ops.to_numpy(autograd.clip_gradients(parameters.values(), ANY_LIMIT)))
    yield f"gradient norm: {norm:.4f}, at a loss scale of {state.loss_scale.value:g}"


def layer_outputs(model: Detector, images: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield what each layer of the graph returns, with the layer's place and name."""
    for index, output in enumerate(model.run_layers(images)):
        name = f"layer {index} ({type(model.model[index]).__name__})"
        if isinstance(output, tuple):
            yield from ((f"{name}, level {level}", x) for level, x in enumerate(output))
        else:
            yield name, output


def first_not_finite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """Return the first tensor with infinity or NaN, and their number; None if all are finite."""
    for name, x in tensors:
        if ops.dtype_of(x) == "int64":
            continue
        wide = "float64" if ops.dtype_of(x) == "float64" else "float32"
        bad = ~np.isfinite(ops.to_numpy(ops.cast(x, wide)))
        if bad.any():
            return f"{name}: {int(bad.sum())} of {bad.size} numbers are not finite"
    return None
