"""Videos that are written: their times, sizes and ends."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from duet.utils.detect.media.video import VideoFile, VideoWriter
from duet.utils.project import PROJECT
from tests.unit.detect.media.videos import SIZE, UNEVEN, number_in, picture

PIXELS = 10**6


def write(path: Path, seconds: list[float], size=SIZE, rate: Fraction | None = None) -> None:
    with closing(VideoWriter(path, size, rate)) as writer:
        for index, moment in enumerate(seconds):
            writer.write(picture(index, size), moment)


def test_uneven_times_and_the_length_are_kept(tmp_path):
    path = tmp_path / "a.mp4"
    write(path, UNEVEN, rate=Fraction(4))
    frames = list(VideoFile(path, PIXELS).frames())
    assert [number_in(frame.image) for frame in frames] == list(range(len(UNEVEN)))
    # A tick is 1/90,000 s.
    assert np.allclose([frame.seconds for frame in frames], UNEVEN, atol=1 / 90_000)
    with av.open(str(path)) as container:
        assert container.duration / av.time_base == pytest.approx(UNEVEN[-1] + 1 / 4, abs=0.001)
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert (stream.frames, stream.start_time) == (len(UNEVEN), 0)
    # As others see it.
    capture = cv2.VideoCapture(str(path))
    assert capture.get(cv2.CAP_PROP_FRAME_COUNT) == len(UNEVEN)


@pytest.mark.parametrize("size", [(47, 63), (47, 64), (48, 63), (16, 500)])
def test_an_odd_side_gets_one_more_row_or_column(size, tmp_path):
    path = tmp_path / "a.mp4"
    write(path, [0.0, 0.1], size)
    frames = list(VideoFile(path, PIXELS).frames())
    assert frames[0].image.shape[:2] == (size[0] + size[0] % 2, size[1] + size[1] % 2)
    # H.264 at crf 20 loses a little of a plain image.
    error = frames[1].image[: size[0], : size[1]].astype(int) - picture(1, size)
    assert np.abs(error[size[0] // 2 :, size[1] // 2 :]).max() < 10


def test_an_exception_leaves_a_whole_video_of_what_was_written(tmp_path):
    path = tmp_path / "a.mp4"
    with pytest.raises(KeyboardInterrupt), closing(VideoWriter(path, SIZE)) as writer:
        for index in range(5):
            writer.write(picture(index), index / 10)
        raise KeyboardInterrupt
    assert len(list(VideoFile(path, PIXELS).frames())) == 5
    assert list(tmp_path.iterdir()) == [path]


FULL = """
import resource, sys
from contextlib import closing
from pathlib import Path
import numpy as np
import av
from duet.utils.detect.media.video import VideoWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
try:
    with closing(VideoWriter(Path(sys.argv[1]), (64, 64), 5)) as writer:
        for index in range(40):
            writer.write(np.roll(noise, index, 1), index / 5)
except OSError as error:
    sys.exit(error.strerror)
"""


@pytest.mark.parametrize("num_bytes", [0, 3000, 40_000])
def test_a_full_disk_is_one_error_and_leaves_nothing(num_bytes, tmp_path):
    command = [sys.executable, "-c", FULL, str(tmp_path / "a.mp4"), str(num_bytes)]
    ended = subprocess.run(command, cwd=PROJECT, check=False, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (1, "File too large\n")
    assert list(tmp_path.iterdir()) == []
