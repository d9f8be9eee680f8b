"""Milliseconds that the host works on an image of a validation, beside what the device computes.

    python -m benchmarks.val_host --weights yolov5n.pt --data coco256.yaml --device cpu

The network predicts once in every image of the split `val`. Then NMS, matching with the labels and
the figures at the end are repeated from its rows, as `models/evaluation.py` does them: processor
time of one core, which another process on the machine hardly changes. Ratios are parts of all of
it. All of it is NumPy, under either backend.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backend import autograd
from benchmarks.side_by_side import Timing, choose_device, finish, new_parser, rows_of
from benchmarks.split import add_val_flags, batches_of, case_of, read_val_split
from utils.comparison.load import LoadWatch
from utils.data.loading.batch import Batch
from utils.data.loading.loader import ValLoader
from utils.data.sources.samples import Sample
from utils.processes.command import run_command
from utils.weights.load import load_weights

TOGETHER, NMS, MATCHING, END = "together", "NMS", "matching", "figures at the end"


@dataclass(frozen=True)
class Predicted:
    """What a network predicts in the images of a split, batch by batch."""

    head: Any
    batches: Sequence[tuple[Batch, Sequence[Any]]]  # without its images; rows of each image
    samples: Sequence[Sample]
    class_names: Sequence[str]

    def seconds(self) -> dict[str, float]:
        """Finish and score all images; return the processor time of each part, and of all."""
        from models.evaluation import DEFAULT_SUPPRESSION

        spent = dict.fromkeys((NMS, MATCHING), 0.0)
        evaluator = self.head.make_evaluator(self.class_names)
        for batch, rows in self.batches:
            begin = time.process_time()
            images = self.head.finish_images(rows, batch.letterboxes, DEFAULT_SUPPRESSION)
            finished = time.process_time()
            for index, found in zip(batch.sample_indices.tolist(), images, strict=True):
                evaluator.add(index, found, self.head.task.ground_truth(self.samples[index]))
            spent[NMS] += finished - begin
            spent[MATCHING] += time.process_time() - finished
        begin = time.process_time()
        evaluator.result()
        spent[END] = time.process_time() - begin
        return {TOGETHER: sum(spent.values()), **spent}


def predict(
    model: Any, loader: ValLoader, samples: Sequence[Sample], names: Sequence[str], device: str
) -> Predicted:
    """Run the network over all batches of a loader."""
    from models.evaluation import DEFAULT_SUPPRESSION
    from models.inference.protocol import network_input

    batches, lowest = [], DEFAULT_SUPPRESSION.confidence_threshold
    for batch in loader:
        with autograd.no_grad():
            raw = model(network_input(model, batch.images, device, None))
            rows = model.decode_above(raw, lowest)
        batches.append((batch._replace(images=batch.images[:0]), rows))
    return Predicted(model.head, batches, samples, names)


def timings_of(case: str, predicted: Predicted, repeats: int) -> list[Timing]:
    """Repeat the host's work and return a row for each part, in milliseconds an image."""
    predicted.seconds()  # warm-up
    load = LoadWatch()
    runs = [predicted.seconds() for _ in range(repeats)]
    number = len(predicted.samples)
    spent = {part: [1000 * run[part] / number for run in runs] for part in runs[0]}
    return rows_of(case, spent, TOGETHER, load.others())


def main() -> None:
    parser = new_parser("val_host", "Milliseconds of the host's work on an image.", repeats=10)
    add = parser.add_argument
    add("--weights", required=True, metavar="F")
    add("--data", required=True, metavar="D", help="its split 'val'")
    add_val_flags(parser, img=640)
    flags = parser.parse_args()
    device = choose_device(flags)
    from models.inference.predictor import load_detector

    samples, class_names = read_val_split(flags)
    model = load_detector(load_weights(flags.weights), device)
    with batches_of(samples, flags, model.stride) as loader:
        predicted = predict(model, loader, samples, class_names, device)
    case = case_of(len(samples), flags)
    finish(flags, timings_of(case, predicted, flags.repeats), device)


if __name__ == "__main__":
    run_command(main)
