"""A validation that is interrupted goes on after its last finished batch, with the same result."""

import numpy as np
import pytest

from models.detector import Detector
from models.graph import read_model_yaml
from tests.small import write_small_dataset, write_tiny_model
from utils.data.loader import ValLoader
from utils.data.sources import load_dataset
from utils.evaluation_progress import EvaluationProgress
from utils.metrics import GroundTruth
from utils.nms import Detections, SuppressionSettings
from val import evaluate, load_split


def detections(count, seed=0):
    generator = np.random.default_rng(seed)
    return Detections(
        generator.random((count, 4), np.float32),
        generator.random(count, np.float32),
        generator.integers(0, 5, count),
    )


def test_arrays_bring_back_every_image_also_those_without_detections():
    progress, nothing = EvaluationProgress(), GroundTruth(np.zeros(0, int), np.zeros((0, 4)))
    for index, count in ((4, 2), (1, 0), (7, 3), (2, 0)):
        progress.add(index, detections(count, index), nothing)
    progress.batches, progress.losses = 2, np.array([0.1, 0.2, 1 / 3])
    found = EvaluationProgress.of_arrays(progress.arrays())
    assert found.batches == 2 and found.losses.tolist() == [0.1, 0.2, 1 / 3]
    assert [index for index, _ in found.found] == [4, 1, 7, 2]
    for (_, left), (_, right) in zip(found.found, progress.found, strict=True):
        for one, other in zip(left, right, strict=True):
            assert one.dtype == other.dtype and np.array_equal(one, other)


def test_nothing_done_is_no_arrays_and_comes_back():
    assert EvaluationProgress().arrays() == {}
    assert EvaluationProgress.of_arrays({}).batches == 0


class Interruption(Exception):
    pass


@pytest.mark.parametrize("finished", [0, 1, 2])
def test_an_interrupted_validation_ends_with_the_figures_of_a_whole_one(tmp_path, finished):
    dataset = load_dataset(write_small_dataset(tmp_path))
    samples = load_split(dataset, "val")
    model = Detector(read_model_yaml(write_tiny_model(tmp_path), 5))
    model.initialize(seed=0)
    loader = ValLoader(samples, 64, 2, workers=0)
    settings = SuppressionSettings(confidence_threshold=1e-6)  # an untrained model finds too

    def run(progress=None):
        arguments = (model.eval(), loader, samples, dataset.class_names, "cpu", settings)
        return evaluate(*arguments, progress=progress)

    seen = []

    def stop():
        seen.append(1)
        if len(seen) == finished + 1:
            raise Interruption

    progress = EvaluationProgress(after_batch=stop)
    with pytest.raises(Interruption):
        run(progress)
    stored = progress.arrays()
    assert len(stored.get("images", ())) == 2 * finished
    assert not finished or stored["counts"].sum() > 0
    whole, rest = run().result, run(EvaluationProgress.of_arrays(stored)).result
    assert whole.num_images == rest.num_images == 6
    np.testing.assert_array_equal(rest.precision_curves, whole.precision_curves)
    assert rest.summary() == pytest.approx(whole.summary(), abs=0, nan_ok=True)
