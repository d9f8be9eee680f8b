"""The main function of detect.py: detect in all sources and write the results."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence

from duet.models.detection.pipeline import Pipeline
from duet.models.detection.settings import make_detector
from duet.models.inference.predictor import class_names_of
from duet.utils.detect.config import DetectConfig
from duet.utils.detect.media.finding import are_several
from duet.utils.detect.media.source import Source
from duet.utils.detect.pipeline.report import Done, RunReport, Window
from duet.utils.detect.results.run_files import RunFiles
from duet.utils.detect.tracker import SourceTrackers
from duet.utils.errors import UserError
from duet.utils.run_folder import create_run_folder
from duet.utils.text import say
from duet.utils.weights.load import Weights

log = logging.getLogger("detect")


def run_detection(
    config: DetectConfig, sources: Sequence[Source], weights: Sequence[Weights]
) -> int:
    """Detect in every frame of the sources and write the results.

    Returns:
        The number of sources that were skipped or broke off; each is logged.

    Raises:
        UserError: no source could be read.
    """
    detector = make_detector(config, weights, are_several(sources, config.tiling))
    class_names = class_names_of(weights[0], detector.predictor.head.num_classes)
    folder = create_run_folder(config.project, config.name, config.exist_ok)
    report = RunReport(sources, config.source)
    track = None
    if config.track:
        track = SourceTrackers(config.confidence_threshold, config.class_agnostic).update
    log.info("weights: %s; source: %s", " ".join(config.weights), report.sources)
    add = with_window(report.add, config)
    try:
        with report, RunFiles(folder, config, class_names) as files:
            pipeline = Pipeline(detector, class_names, files, add, config.batch_size, track)
            pipeline.run(sources)
    except (KeyboardInterrupt, SystemExit):
        say(f"stopped after {report.done}; results so far saved to {folder}")
        raise
    if not report.num_frames:
        with contextlib.suppress(OSError):  # labels of an earlier run may be in it
            folder.rmdir()
        raise UserError(f"--source {report.sources}: no image or video could be read")
    report.print_totals(pipeline.seconds.by_stage)
    say(f"results in {folder}")
    return report.num_broken


def with_window(report: Callable[[Done], None], config: DetectConfig) -> Callable[[Done], None]:
    """Return `report`, extended to show the drawn image if --view-img; q acts as Ctrl-C."""
    if not config.view_images:
        return report
    window = Window("detect.py")
    labels, scores = not config.hide_labels, not config.hide_conf

    def report_and_show(done: Done) -> None:
        report(done)
        if done.result is not None:
            drawn = done.result.plot(config.line_thickness, labels, scores)
            if window.show(drawn):
                raise KeyboardInterrupt

    return report_and_show
