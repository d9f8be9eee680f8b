"""Batches whose decoder ends the process, in the middle of one image."""

import signal

import cv2

from utils.data.loading.batches import TrainBatches

CRASHING_INDEX = 3


def end_by(number: signal.Signals) -> None:
    """Let the decoder send this process a signal."""

    def crash(*arguments):
        signal.raise_signal(number)

    cv2.imdecode = crash


class CrashingBatches(TrainBatches):
    """Training batches of which one image ends a worker, as a damaged one ends a decoder."""

    ends_by = signal.SIGSEGV

    def _decode(self, index, sample, reduction):
        if index == CRASHING_INDEX:
            end_by(self.ends_by)
        return super()._decode(index, sample, reduction)


class KilledBatches(CrashingBatches):
    """Likewise, as the kernel does to a process that takes too much memory."""

    ends_by = signal.SIGKILL
