"""--batch-size -1: choose the batch size by measuring the memory of training steps on a GPU.

It measures the largest possible step: the largest images drawn by --multi-scale, each with the
maximum number of boxes of an augmented image; then a validation, of twice as many images.
"""

import dataclasses
import gc
import logging
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from duet import backend
from duet.backend import autograd
from duet.backend.checks import CPU
from duet.backend.processes import this_process
from duet.models.evaluation.evaluate import DEFAULT_SUPPRESSION
from duet.models.inference.predictors import in_precision, network_input
from duet.models.training.multi_scale import MultiScale
from duet.models.training.start import build_model, build_state, quietly
from duet.models.training.step import TrainState, settle, train_step
from duet.models.training.step_watch import StageTimer
from duet.utils.data.image.decoding import LabelledImage
from duet.utils.data.loading.batch import Batch, join_targets
from duet.utils.data.loading.items import BOXES, BoxItems
from duet.utils.data.sources.samples import Sample, table_of
from duet.utils.errors import UserError
from duet.utils.processes import watchdog
from duet.utils.processes.ranks import on_main
from duet.utils.processes.world import World
from duet.utils.state.job import Job
from duet.utils.strengths import AugmentConfig
from duet.utils.text import count

PART_OF_FREE = 0.8  # fraction of initially free memory to use; the rest is a reserve
LARGEST = 1024  # images per process
ON_CPU = 16  # more are no faster there, so nothing is measured
STEPS = 2  # per size; the first one allocates optimizer state
GIB = 2**30
# Up to the limit per image.
EVERY_ROW = dataclasses.replace(DEFAULT_SUPPRESSION, confidence_threshold=0.0)

log = logging.getLogger("train")


def with_batch_size(job: Job) -> Job:
    """Return the job with a measured batch size, the same on all ranks; on a CPU, a fixed one.

    Raises:
        UserError: not enough memory for one image.
    """
    device, ranks = backend.device.resolve(job.config.device), this_process().world_size
    most = max(-(-len(job.data.train) // ranks), 1)
    if device == CPU:
        batch = min(ON_CPU, most) * ranks
        on_main(log.info)("--batch-size -1: using %d; larger batches are no faster on a CPU", batch)
    else:
        with watchdog.phase("measuring the batch size"):
            batch = fitting_batch(job, device, min(LARGEST, most)) * ranks
            gc.collect()  # frees the measured model
    return dataclasses.replace(job, config=dataclasses.replace(job.config, batch_size=batch))


def fitting_batch(job: Job, device: str, most: int) -> int:
    """Return the number of images per rank that fits into memory, at most `most`."""
    config, data, world = job.config, job.data, job.session.world
    state = measured_state(job, device)
    side, boxes = config.image_size, most_boxes(data.train, config.augmentation(job.hyp))
    if config.multi_scale:
        side = MultiScale.of_model(side, state.model.stride, config.seed).sizes()[-1]

    def measure(images: int) -> int:
        batch = crowded_batch(images, side, boxes, data.items)

        def run() -> None:
            train_on(state, batch)
            validate_on(state, batch.images[..., : config.image_size, : config.image_size])

        return backend.device.peak_memory(run, device)

    present = backend.device.peak_memory(lambda: None, device)
    budget = memory_budget(device, present, may_have_graphs=config.compile)
    ranks = world.process.world_size
    peaks = measure_sizes(measure, present, most, budget, world)
    own = min(most, fit_line(peaks, budget))
    fitting = int(np.concatenate(world.all_gather(np.array([own], np.int64))).min())
    largest = sorted(peaks.items())[1:][-2:]
    measured = ", ".join(f"{peak / GIB:.2f} GiB with {count(n, 'image')}" for n, peak in largest)
    what = f"{measured} of {side} x {side} px with {count(boxes, 'box', 'boxes')}"
    if fitting < 1:
        raise UserError(
            f"--batch-size -1: not enough memory: a training step takes {what}, but only "
            f"{budget / GIB:.1f} GiB may be used; use a smaller --img or model"
        )
    on_main(log.info)(
        "--batch-size -1: a training step takes %s, %.2f GiB may be used: using "
        "--batch-size %d%s%s",
        what,
        budget / GIB,
        fitting * ranks,
        f", {fitting} per process" if ranks > 1 else "",
        " (the maximum)" if fitting == most else "",
    )
    return fitting


def measured_state(job: Job, device: str) -> TrainState:
    """Return a training state for a model like the job's."""
    ranks = job.session.world.process.world_size
    # Only one shape is compiled, and eager steps take more memory.
    config = dataclasses.replace(job.config, batch_size=ranks, multi_scale=False, compile=False)
    with quietly():
        model = build_model(config, job.hyp, job.start, job.data.class_names)
        return build_state(config, job.hyp, model, 1, device)


def train_on(state: TrainState, batch: Batch) -> None:
    for _ in range(STEPS):
        train_step(state, batch, StageTimer(state.device))
        settle(state)  # waits for the steps by reading the losses
        state.watch.end_epoch()


def validate_on(state: TrainState, images: np.ndarray) -> None:
    """Validate twice as many images, with as many candidates as there can be."""
    execution, device = state.execution, state.device
    dtype, layout = execution.autocast_dtype, execution.channels_last
    model = in_precision(state.ema.model, device, dtype, layout)
    with autograd.no_grad():
        raw = model(network_input(model, np.concatenate([images, images]), device, layout))
        model.decode_above(raw, EVERY_ROW)


def memory_budget(device: str, present: int, may_have_graphs: bool) -> int:
    """Return the bytes that this process may use: those in use and a fraction of the free ones."""
    free = backend.device.free_memory(device) or 0
    # Graphs keep their memory; a batch of another size runs eagerly and needs as much again.
    return present + int(PART_OF_FREE * free / (2 if may_have_graphs else 1))


def measure_sizes(
    measure: Callable[[int], int], present: int, most: int, budget: int, world: World
) -> dict[int, int]:
    """Return peak memory by number of images, 0, 1, 2, 4, ..., while the next may fit on all ranks.

    Args:
        measure: returns the peak bytes of steps with a number of images.
        present: bytes without images.
    """
    peaks, images = {0: present}, 1
    while images <= most and not world.any(fit_line(peaks, budget) < images):
        try:
            peaks[images] = measure(images)
        except Exception as error:
            if not backend.device.is_out_of_memory(error):
                raise
            peaks[images] = max(budget, *peaks.values()) + 1  # exceeds the budget
        images *= 2
    return peaks


def fit_line(peaks: Mapping[int, int], budget: int) -> int:
    """Return the number of images in the budget, extrapolated from the two largest sizes.

    One image is always tried.
    """
    if len(peaks) == 1:
        return 1
    (before, less), (size, peak) = sorted(peaks.items())[-2:]
    if peak > budget:
        return before if less <= budget else 0
    return size + int((budget - peak) / max((peak - less) / (size - before), 1.0))


def most_boxes(samples: Sequence[Sample], strengths: AugmentConfig) -> int:
    tiles = 4 if strengths.mosaic else 1
    twice = (strengths.mixup > 0) + (strengths.copy_paste > 0)
    return int(table_of(samples).num_objects.max()) * tiles * 2**twice


def crowded_batch(images: int, side: int, boxes: int, items: BoxItems = BOXES) -> Batch:
    """Return a deterministic batch of noise with boxes of many sizes on each image.

    items: creates the targets, with objects that fill their boxes.
    """
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (images, 3, side, side), np.uint8)
    centres = generator.uniform(0.2, 0.8, (images * boxes, 2))
    sizes = np.exp(generator.uniform(np.log(0.02), np.log(0.4), (images * boxes, 2)))
    edges = np.concatenate([centres - sizes / 2, centres + sizes / 2], axis=1) * side
    image, class_index = np.zeros((side, side, 3), np.uint8), np.zeros(boxes, np.int64)
    targets = [
        items.targets(LabelledImage(image, class_index, own))
        for own in edges.reshape(images, boxes, 4)
    ]
    indices = np.arange(images)
    of_all_ranks = np.tile(indices, this_process().world_size)
    return Batch(pixels, join_targets(targets), indices, (), of_all_ranks)
