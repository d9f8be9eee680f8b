"""Images per second of detect.py from files to results, compared with the network's forward pass.

    python -m benchmarks.detect --weights yolov5n.pt --source images/ --img 640 --device cpu

The reference gives the network batches that are ready as tensors, and waits for each. On a CPU the
pipeline has several of them in the network at once, each with a part of the cores, so the forward
pass is timed that way too. The others are the whole pipeline with the same images in the same
batches: with nothing written, as with --nosave, and with boxes drawn on every image. The seconds of
the stages are those of the last run.
Without --weights the model is untrained, and what it finds says nothing of NMS and drawing.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.side_by_side import choose_device, finish, new_parser, time_in_turns
from detect import place_of
from duet import backend
from duet.backend import autograd, nn
from duet.utils.cli.flags import from_one
from duet.utils.data.sources.dataset import BUILT_IN, load_dataset
from duet.utils.detect.config import DetectConfig
from duet.utils.detect.media.finding import find_sources
from duet.utils.detect.media.source import Source
from duet.utils.detect.pipeline.threads import Reader
from duet.utils.detect.results.run_files import RunFiles
from duet.utils.processes.command import run_command
from duet.utils.text import count
from duet.utils.weights.checkpoint import Checkpoint, Header
from duet.utils.weights.load import load_weights


@dataclass
class Detected:
    """What all ways are given."""

    detector: Any  # an ImageDetector
    sources: Sequence[Source]
    config: DetectConfig

    def batches(self) -> list[Any]:
        """Return what the network takes, as tensors."""
        from duet.models.detector import images_to_tensor

        tensors, size = [], self.config.batch_size
        with Reader(self.detector.views, size, 1) as reader:
            for batch in reader.batches(self.sources):
                views = [view.pixels.transpose(2, 0, 1) for read in batch for view in read.prepared]
                for shape in dict.fromkeys(view.shape for view in views):
                    alike = np.stack([view for view in views if view.shape == shape])
                    tensors.append(images_to_tensor(alike, self.detector.device))
        return tensors

    def forward(self, tensor: Any) -> None:
        """Run the network on a batch, to its end."""
        with autograd.no_grad():
            self.detector.predictor(tensor)
            backend.device.synchronize(self.detector.device)

    def in_lanes(self, tensors: Sequence[Any]) -> None:
        from duet.models.detect.pipeline import Lanes

        with Lanes(self.detector.lanes) as lanes:
            for done in [lanes.submit(self.forward, tensor) for tensor in tensors]:
                done.result()

    def unwritten(self) -> None:
        self._detect(None)

    def written(self) -> None:
        with TemporaryDirectory() as folder:
            files = RunFiles(Path(folder), self.config, self.detector.class_names)
            with files:
                self._detect(files)

    def _detect(self, files: RunFiles | None) -> None:
        from duet.models.detect.pipeline import Pipeline

        size = self.config.batch_size
        Pipeline(self.detector, files, lambda done: None, size).run(self.sources)


def build(flags: argparse.Namespace, device: str) -> Detected:
    """Return what is measured, with the flags of detect.py."""
    from duet.models.detect.settings import make_detector

    config = DetectConfig(
        weights=(flags.weights or flags.cfg,),
        source=flags.source,
        image_size=flags.img,
        batch_size=flags.batch,
        device=device,
    )
    weights = [load_weights(flags.weights) if flags.weights else untrained(flags.cfg)]
    sources = find_sources(place_of(flags.source), config.max_pixels)[: flags.images]
    detector = make_detector(config, weights)
    return Detected(detector, sources, config)


def untrained(cfg: str, names: tuple[str, ...] = ()) -> Checkpoint:
    """Return drawn weights for a model YAML, with these classes or the built-in dataset's."""
    from duet.models.detector import Detector
    from duet.models.graph import read_model_yaml

    names = names or load_dataset(BUILT_IN, splits=()).class_names
    model = Detector(read_model_yaml(cfg, len(names)))
    model.initialize(seed=0)
    arrays = nn.state_arrays(model)
    return Checkpoint(Header(model.spec.document, names), arrays, arrays, {})


def main() -> None:
    parser = new_parser("detect", "Images per second of detect.py.", repeats=5)
    add = parser.add_argument
    add("--weights", default="", metavar="F", help="default: untrained weights of --cfg")
    add("--cfg", default="models/yolov5n.yaml", metavar="F")
    add("--source", default="shapes", metavar="S", help="images, as detect.py takes them")
    add("--img", type=from_one, default=640, metavar="PX")
    add("--batch", type=from_one, default=1, metavar="N")
    add("--images", type=from_one, default=64, metavar="N", help="only the first N")
    flags = parser.parse_args()
    device = choose_device(flags)
    run = build(flags, device)
    tensors = run.batches()
    ways = {
        "forward pass alone": lambda: [run.forward(tensor) for tensor in tensors],
        "the same, in lanes": lambda: run.in_lanes(tensors),
        "detect --nosave": run.unwritten,
        "detect": run.written,
    }
    number = len(run.sources)
    case = f"{count(number, 'image')}, {flags.img} px, batch {flags.batch}"
    timings = time_in_turns(case, ways, device, flags.repeats, warm_up=1, images=number)
    finish(flags, timings, device)


if __name__ == "__main__":
    run_command(main)
