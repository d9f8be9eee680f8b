"""Videos that are written: their times, sizes and ends."""

from __future__ import annotations

import errno
import resource
import signal
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from tests.unit.media.videos import SIZE, UNEVEN, number_in, picture
from utils.errors import UserError
from utils.files.project import PROJECT
from utils.media.video_file import VideoFile
from utils.media.video_writer import VideoWriter

PIXELS = 10**6


def write(path: Path, seconds: list[float], size=SIZE, rate: Fraction | None = None) -> None:
    with VideoWriter(path, size, rate) as writer:
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


@pytest.mark.parametrize("rate", [Fraction(30000, 1001), Fraction(25), Fraction(1), None])
def test_the_rate_of_even_times_is_told(rate, tmp_path):
    path = tmp_path / "a.mp4"
    write(path, [float(index / (rate or 30)) for index in range(31)], rate=rate)
    source = VideoFile(path, PIXELS)
    assert len(list(source.frames())) == 31
    assert float(source.rate) == pytest.approx(float(rate or 30), rel=1e-5)


@pytest.mark.parametrize("size", [(47, 63), (47, 64), (48, 63), (16, 500)])
def test_an_odd_side_gets_one_more_row_or_column(size, tmp_path):
    path = tmp_path / "a.mp4"
    write(path, [0.0, 0.1], size)
    frames = list(VideoFile(path, PIXELS).frames())
    assert frames[0].image.shape[:2] == (size[0] + size[0] % 2, size[1] + size[1] % 2)
    # H.264 at crf 20 loses a little of a plain image.
    error = frames[1].image[: size[0], : size[1]].astype(int) - picture(1, size)
    assert np.abs(error[size[0] // 2 :, size[1] // 2 :]).max() < 10


def test_a_time_that_does_not_go_on_is_moved(tmp_path):
    path = tmp_path / "a.mp4"
    write(path, [0.0, 0.1, 0.1, 0.05, 0.2])
    seconds = [frame.seconds for frame in VideoFile(path, PIXELS).frames()]
    assert seconds == pytest.approx([0, 0.1, 0.1, 0.1, 0.2], abs=3 / 90_000)
    assert sorted(set(seconds)) == seconds


def test_a_frame_of_another_size_is_resized(tmp_path):
    path = tmp_path / "a.mp4"
    with VideoWriter(path, SIZE) as writer:
        writer.write(picture(0), 0)
        writer.write(picture(7, (100, 30)), 0.1)
    first, second = VideoFile(path, PIXELS).frames()
    assert second.image.shape == first.image.shape and number_in(second.image) == 7


def test_the_name_appears_when_the_file_is_complete(tmp_path):
    path = tmp_path / "a.mp4"
    path.write_text("an older file")
    writer = VideoWriter(path, SIZE)
    writer.write(picture(0), 0)
    assert path.read_text() == "an older file"
    writer.close()
    assert len(list(VideoFile(path, PIXELS).frames())) == 1
    assert list(tmp_path.iterdir()) == [path]
    writer.close()  # again: nothing happens


def test_an_exception_leaves_a_whole_video_of_what_was_written(tmp_path):
    path = tmp_path / "a.mp4"
    with pytest.raises(KeyboardInterrupt), VideoWriter(path, SIZE) as writer:
        for index in range(5):
            writer.write(picture(index), index / 10)
        raise KeyboardInterrupt
    assert len(list(VideoFile(path, PIXELS).frames())) == 5
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_frame_there_is_no_file(tmp_path):
    with VideoWriter(tmp_path / "a.mp4", SIZE):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_side_that_h264_does_not_have_is_refused(tmp_path):
    with pytest.raises(UserError, match="20000x10 px; at most 16,384"):
        VideoWriter(tmp_path / "a.mp4", (10, 20000))


def test_a_folder_that_is_not_there_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "none" / "a.mp4"
    with pytest.raises(FileNotFoundError, match="a.mp4"), VideoWriter(path, SIZE) as writer:
        writer.write(picture(0), 0)


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from tests.unit.media.videos import picture
from utils.media.video_writer import VideoWriter
writer = VideoWriter(Path(sys.argv[1]), (48, 64), 10)
for index in range(100):
    writer.write(picture(index % 24), index / 10)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_leaves_can_be_played(tmp_path):
    path = tmp_path / "a.mp4"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=PROJECT, check=False)
    assert ended.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".a.mp4.")  # not under the name of a complete file
    frames = list(VideoFile(left, PIXELS).frames())
    # What is lost: the last second, which is not whole, and what the encoder looks ahead.
    assert len(frames) >= 100 - 10 - 20
    assert [number_in(frame.image) for frame in frames] == [n % 24 for n in range(len(frames))]


FULL = """
import resource, sys
from pathlib import Path
import numpy as np
import av
from utils.media.video_writer import VideoWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
try:
    with VideoWriter(Path(sys.argv[1]), (64, 64), 5) as writer:
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


def test_a_frame_that_follows_an_error_does_not_hide_it(tmp_path, monkeypatch):
    """Frames that other threads have ready still come, and FFmpeg's errors for them say nothing."""
    full = OSError(errno.ENOSPC, "No space left on device")
    writer = VideoWriter(tmp_path / "a.mp4", SIZE)
    with pytest.raises(OSError, match="No space left"), writer:
        writer.write(picture(0), 0.0)
        monkeypatch.setattr(writer, "_mux", raising(full))
        with pytest.raises(OSError, match="No space left.*a.mp4"):
            writer.write(picture(1), 0.1)
        monkeypatch.setattr(writer, "_mux", raising(RuntimeError("Error in a callback")))
        with pytest.raises(OSError, match="No space left"):
            writer.write(picture(2), 0.2)
    assert list(tmp_path.iterdir()) == []


def raising(error):
    def fail(*arguments):
        raise error

    return fail


def test_a_long_video_takes_no_more_memory(tmp_path):
    path = tmp_path / "a.mp4"
    image = np.zeros((96, 96, 3), np.uint8)
    with VideoWriter(path, (96, 96), Fraction(50)) as writer:
        for index in range(100):
            writer.write(image, index / 50)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for index in range(100, 1000):
            writer.write(image, index / 50)
    # The raw frames are 25 MB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10 * 1024
