"""A validation that is stopped goes on after its last finished batch, with the same result."""

import numpy as np
import pytest

from backend.processes import Process
from backend.words import count
from models.detector import Detector
from models.evaluation import evaluate, nothing_done
from models.graph import read_model_yaml
from models.heads.anchor.head import AnchorHead
from models.heads.mask.scored import ScoredMasks
from tests.presence_head import PresenceHead, Present
from tests.small import write_small_dataset, write_tiny_model
from utils.data.loading.loader import ValLoader
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import load_split
from utils.detections import Detections, Segmentations
from utils.evaluation.nms import SuppressionSettings
from utils.evaluation.progress import (
    Collector,
    EvaluationSuspended,
    FoundImage,
    make_progress,
    read_progress,
)
from utils.processes.world import World
from utils.ragged import Ragged
from utils.state.checkpoint import DTYPES


class MaskTask(ScoredMasks):
    """What a validation asks of a head of masks."""

    loss_names = {"box": "box", "mask": "seg"}


def detections(count, seed=0):
    generator = np.random.default_rng(seed)
    return Detections(
        generator.random((count, 4), np.float32),
        generator.random(count, np.float32),
        generator.integers(0, 5, count),
    )


def present(count, seed=0):
    return Present(np.random.default_rng(seed).random(count, np.float32))


def segmentations(count, seed=0):
    generator = np.random.default_rng(seed)
    runs = [generator.integers(0, 1 << 32, length, np.uint32) for length in range(count)]
    return Segmentations(*detections(count, seed), Ragged.of(runs, np.uint32))


def leaves(found):
    """All arrays of what is found, those of rows of different lengths too."""
    return [x for field in found for x in (field if isinstance(field, Ragged) else [field])]


# By head: its losses of two batches, and something found in an image.
TASKS = {
    AnchorHead: (np.array([[0.1, 0.2, 1 / 3], [0.4, 0.5, 1 / 7]]), detections),
    PresenceHead: (np.array([[0.1, 1 / 3], [0.4, 1 / 7]]), present),
    MaskTask: (np.array([[0.1, 1 / 3], [0.4, 1 / 7]]), segmentations),
}


@pytest.mark.parametrize("head", TASKS)
def test_arrays_bring_back_every_image_also_those_in_which_nothing_is_found(head):
    losses, found_by = TASKS[head]
    images = [
        FoundImage(batch, index, found_by(count, index))
        for batch, index, count in ((0, 4, 2), (0, 1, 0), (1, 7, 3), (1, 2, 0))
    ]
    saved = make_progress(losses, images, head.nothing_found).arrays()
    progress = read_progress(saved, nothing_done(head), num_images=8)
    assert progress.num_batches == 2
    np.testing.assert_array_equal(progress.losses, losses)
    for found, image in zip(progress.found(), images, strict=True):
        assert found[:2] == image[:2]
        for one, other in zip(leaves(found.found), leaves(image.found), strict=True):
            assert one.dtype == other.dtype and np.array_equal(one, other)


def test_detection_saves_its_arrays_as_every_version_did():
    arrays = nothing_done(AnchorHead).arrays()
    assert {name: (x.dtype.name, x.shape) for name, x in arrays.items()} == {
        "losses": ("float64", (0, 3)), "images": ("int64", (0, 3)), "class_index": ("int64", (0,)),
        "scores": ("float32", (0,)), "boxes_xyxy": ("float32", (0, 4)),
    }  # fmt: skip


def progress_of_masks():
    losses, found_by = TASKS[MaskTask]
    images = [FoundImage(batch, index, found_by(2 + batch)) for batch, index in ((0, 4), (1, 1))]
    return make_progress(losses, images, MaskTask.nothing_found)


def test_what_is_saved_of_masks_is_what_checkpoints_hold_and_ranks_exchange():
    known = {"float32", "float64", "int64", "uint8"}
    arrays = progress_of_masks().arrays()
    assert {array.dtype.name for array in arrays.values()} <= known
    assert {"F32", "F64", "I64", "U8"} <= set(DTYPES)
    assert arrays["masks.values"].shape == (4, 4)  # 0 + 1 and 0 + 1 + 2 runs, in bytes


@pytest.mark.parametrize(("name", "change"), [
    ("masks.lengths", lambda x: x + 1), ("masks.lengths", lambda x: -x),
    ("masks.lengths", lambda x: x[:-1]), ("masks.lengths", lambda x: x + (1 << 62)),
    ("masks.values", lambda x: x[:-1]), ("masks.values", lambda x: x[:, :3]),
    ("masks.values", lambda x: x.view(np.uint32)), ("scores", lambda x: x[:-1]),
    ("images", lambda x: x * [[1, 1, -1]]), ("images", lambda x: x * [[1, 1, 1 << 40]]),
])  # fmt: skip
def test_damaged_masks_of_a_validation_are_refused(name, change):
    arrays = progress_of_masks().arrays()
    arrays[name] = change(arrays[name])
    with pytest.raises(ValueError, match="validation"):
        read_progress(arrays, nothing_done(MaskTask), num_images=8)


def test_several_ranks_hand_on_all_masks_in_the_order_of_a_single_process():
    of_ranks = []
    for rank in range(2):
        losses = np.array([[1.0, 2.0], [3.0, 4.0]]) * (rank + 1)
        images = [FoundImage(batch, 2 * batch + rank, segmentations(batch + rank, 2 * batch + rank))
                  for batch in range(2)]  # fmt: skip
        of_ranks.append((losses, images))
    nothing = nothing_done(MaskTask)
    exchanged = iter(zip(*(
        make_progress(*one, MaskTask.nothing_found).arrays().values() for one in of_ranks
    ), strict=True))  # fmt: skip
    received = []
    world = World(Process(0, 0, 2), lambda array: list(next(exchanged)))
    collector = Collector(nothing, world, received.append)
    for losses, image in zip(*of_ranks[0], strict=True):
        collector.add_image(image)
        collector.end_batch(losses)
    assert received == []
    np.testing.assert_allclose(collector.finish(), [6, 9])
    assert [image.image_index for image in received] == [0, 1, 2, 3]
    for image in received:
        wanted = segmentations(image.batch_index + image.image_index % 2, image.image_index)
        for one, other in zip(leaves(image.found), leaves(wanted), strict=True):
            np.testing.assert_array_equal(one, other)


def test_many_images_come_back_in_a_time_that_grows_with_their_number(monkeypatch):
    # Each array is cut once; an image does not look at the rows of the others.
    progress, taken = progress_of_masks(), []
    monkeypatch.setattr(Ragged, "take", lambda self, rows: taken.append(rows))
    assert len(progress.found()) == 2 and taken == []


@pytest.mark.parametrize("head", TASKS)
def test_nothing_done_comes_back_as_nothing(head):
    nothing = nothing_done(head)
    progress = nothing.of_arrays(nothing.arrays())
    assert progress.num_batches == 0 and progress.found() == []


def test_a_validation_of_another_task_is_refused():
    nothing, arrays = nothing_done(AnchorHead), nothing_done(PresenceHead).arrays()
    with pytest.raises(ValueError, match=r"it has \['images', 'losses', 'scores'\]"):
        read_progress(arrays, nothing, num_images=8)
    arrays = {**nothing.arrays(), "losses": arrays["losses"]}
    with pytest.raises(ValueError, match=r"an array float64 \(0, 2\)"):
        read_progress(arrays, nothing, num_images=8)


@pytest.mark.parametrize("finished", [1, 2, 3])
def test_a_stopped_validation_ends_with_the_figures_of_a_whole_one(tmp_path, finished):
    dataset = load_dataset(write_small_dataset(tmp_path))
    samples = load_split(dataset, "val")
    model = Detector(read_model_yaml(write_tiny_model(tmp_path), 5))
    model.initialize(seed=0)
    loader = ValLoader(samples, 64, 2, workers=0)
    settings = SuppressionSettings(confidence_threshold=1e-6)  # an untrained model finds too

    def run(**options):
        arguments = (model.eval(), loader, samples, dataset.class_names, "cpu", settings)
        return evaluate(*arguments, **options)

    answers = iter([False] * (finished - 1) + [True])
    with pytest.raises(
        EvaluationSuspended, match=f"after {count(finished, 'batch', 'batches')}"
    ) as stopped:
        run(should_stop=lambda: next(answers))
    progress = stopped.value.progress
    assert len(progress.images) == 2 * finished and progress.images[:, 2].sum() > 0
    whole, rest = run().result, run(progress=progress).result
    assert whole.num_images == rest.num_images == 6
    np.testing.assert_array_equal(rest.precision_curves, whole.precision_curves)
    assert rest.summary() == pytest.approx(whole.summary(), abs=0, nan_ok=True)
