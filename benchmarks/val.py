"""Milliseconds of a whole validation, from the first batch to COCO's figures.

    python -m benchmarks.val --weights yolov5n.pt --data coco256.yaml --img 640 --device cpu

The plain way decodes and fetches every row, and finishes the NMS of a batch before it begins the
next. The fast one is `models/evaluation/evaluate.py::Evaluation`. Both take the same batches from
the same loader, in turns, and must give the same figures. Without --weights the model is untrained:
its scores do not show how many rows trained weights would leave.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.detect import untrained
from benchmarks.side_by_side import choose_device, finish, new_parser, time_in_turns
from duet.backend import autograd, ops
from duet.utils.cli.flags import from_one
from duet.utils.data.loading.batches import ValRecipe
from duet.utils.data.loading.loader import ValLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import Sample, ground_truth
from duet.utils.data.sources.splits import load_split
from duet.utils.evaluation.coco.metric import DetectionEvaluator, EvaluationResult
from duet.utils.evaluation.nms import non_max_suppression
from duet.utils.processes.command import run_command
from duet.utils.text import count
from duet.utils.weights.load import load_weights

# A sigmoid may round otherwise in another memory layout, which can turn the order of two scores.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Validated:
    """What both ways of validating are given."""

    model: Any  # a Detector
    loader: ValLoader
    samples: Sequence[Sample]
    class_names: tuple[str, ...]
    device: str

    def plainly(self) -> EvaluationResult:
        """Validate with every row decoded and fetched, and no overlap."""
        from duet.models.detector import images_to_tensor
        from duet.models.evaluation.evaluate import DEFAULT_SUPPRESSION

        evaluator = DetectionEvaluator(self.class_names)
        for batch in self.loader:
            with autograd.no_grad():
                raw = self.model(images_to_tensor(batch.images, self.device))
                predictions = ops.to_numpy(self.model.decode(raw))
            for index, decoded, letterbox in zip(
                batch.sample_indices.tolist(), predictions, batch.letterboxes, strict=True
            ):
                found = non_max_suppression(decoded, DEFAULT_SUPPRESSION)
                boxes_xyxy = letterbox.to_original(found.boxes_xyxy)
                found = found._replace(boxes_xyxy=boxes_xyxy)
                evaluator.add(index, found, ground_truth(self.samples[index]))
        return evaluator.result()

    def overlapped(self) -> EvaluationResult:
        """Validate as val.py does."""
        from duet.models.evaluation.evaluate import Evaluation

        evaluation = Evaluation(self.model, self.samples, self.class_names, self.device)
        return evaluation.run(self.loader).result


def require_equal_figures(plain: EvaluationResult, overlapped: EvaluationResult) -> None:
    """Raise SystemExit if the two ways give different figures."""
    figures = [np.nan_to_num(list(x.summary().values())) for x in (plain, overlapped)]
    difference = float(np.abs(figures[0] - figures[1]).max())
    if difference > TOLERANCE:
        raise SystemExit(f"figures differ by {difference:.1e}: the times compare unequal work")


def main() -> None:
    parser = new_parser("val", "Milliseconds of a whole validation.", repeats=5)
    add = parser.add_argument
    add("--weights", default="", metavar="F", help="default: untrained weights of --cfg")
    add("--cfg", default="models/yolov5n.yaml", metavar="F")
    add("--data", default="shapes", metavar="D", help="its split 'val'")
    add("--img", type=from_one, default=320, metavar="PX")
    add("--batch", type=from_one, default=32, metavar="N")
    add("--workers", type=int, default=2, metavar="N")
    add("--images", type=from_one, metavar="N", help="only the first N")
    flags = parser.parse_args()
    device = choose_device(flags)
    dataset = load_dataset(flags.data, splits=("val",))
    samples, class_names = load_split(dataset, "val")[: flags.images], dataset.class_names
    from duet.models.stored import load_detector

    weights = load_weights(flags.weights) if flags.weights else untrained(flags.cfg, class_names)
    model = load_detector(weights, device)
    recipe = ValRecipe(flags.img, flags.batch, model.stride)
    with ValLoader(samples, recipe, flags.workers) as loader:
        run = Validated(model, loader, samples, class_names, device)
        require_equal_figures(run.plainly(), run.overlapped())
        both = {"plain": run.plainly, "overlapped": run.overlapped}
        case = f"validation of {count(len(samples), 'image')}, {flags.img} px, batch {flags.batch}"
        timings = time_in_turns(case, both, device, flags.repeats, warm_up=0, images=len(samples))
    finish(flags, timings, device)


if __name__ == "__main__":
    run_command(main)
