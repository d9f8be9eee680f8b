"""Videos: frames, times and rotation of read files, damaged files, and written ones."""

import os
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from duet.utils.detect.media.video import VideoFile, VideoWriter
from duet.utils.errors import BrokenSourceError
from tests.unit.detect.made import EVEN, KINDS, SIZE, UNEVEN, number_in, picture, video
from tests.unit.files.test_atomic import full_disk

PIXELS = 10**6


def read(path: Path, stride: int = 1) -> tuple[list, str]:
    """The frames of a file, and why they end."""
    frames = []
    try:
        for frame in VideoFile(path, PIXELS, stride).frames():
            frames.append(frame)
    except BrokenSourceError as error:
        return frames, str(error)
    return frames, ""


@pytest.mark.parametrize("name", KINDS)
def test_frames_come_in_order_with_number_and_time(name, tmp_path):
    path = tmp_path / name
    video(path, KINDS[name])
    frames, end = read(path)
    assert end == ""
    assert [frame.number for frame in frames] == list(range(20))
    assert [number_in(frame.image) for frame in frames] == list(range(20))
    # FLV and Matroska keep whole milliseconds.
    assert np.allclose([frame.seconds for frame in frames], EVEN, atol=0.001)
    image = frames[0].image
    assert (image.shape, image.dtype, frames[0].source) == ((*SIZE, 3), np.uint8, path)
    # RGB: the corner is red. The codecs lose some of it.
    assert np.abs(image[4:10, 4:10].astype(int) - picture(0)[4:10, 4:10]).max() < 40


@pytest.mark.parametrize(("degrees", "turns"), [(90, 1), (180, 2), (270, 3)])
def test_rotated_video_is_upright(degrees, turns, tmp_path):
    path, plain = tmp_path / "a.mp4", tmp_path / "b.mp4"
    video(path, "libx264", rotation=degrees, qp="0")  # lossless: x264 may choose otherwise
    video(plain, "libx264", qp="0")
    turned, upright = read(path)[0], read(plain)[0]
    assert len(turned) == len(upright) == 20
    # The rotation is counter-clockwise, as np.rot90's.
    assert (turned[3].image == np.rot90(upright[3].image, turns)).all()
    assert turned[3].image.flags.c_contiguous


def test_strided_frames_keep_their_own_number_and_time(tmp_path):
    path = tmp_path / "a.mp4"
    video(path, "libx264")
    source = VideoFile(path, PIXELS, stride=6)
    frames = list(source.frames())
    assert [frame.number for frame in frames] == [0, 6, 12, 18]
    assert [number_in(frame.image) for frame in frames] == [0, 6, 12, 18]
    assert [frame.seconds for frame in frames] == pytest.approx([0, 0.24, 0.48, 0.72])
    assert (source.kind, source.rate, source.num_frames) == ("video", Fraction(25, 6), 4)


@pytest.mark.parametrize("name", ["a.mp4", "a.avi", "fast.mp4"])
@pytest.mark.parametrize("part", [0.3, 0.8])
def test_truncated_video_gives_its_frames_and_is_reported(name, part, tmp_path):
    path = tmp_path / name
    options = {"movflags": "+faststart"} if name == "fast.mp4" else {}
    video(path, KINDS.get(name, "libx264"), **options)
    assert read(path)[1] == ""
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    frames, end = read(path)
    assert any(word in end for word in ("cut short", "truncated", "contains no video"))
    assert [frame.number for frame in frames] == list(range(len(frames)))
    assert len(frames) < 20
    assert bool(frames) == (part >= 0.8 and name != "a.mp4")  # whose index is at its end


def test_damage_mid_video_is_reported_and_the_rest_read(tmp_path):
    path = tmp_path / "a.avi"
    video(path, "mjpeg", pix_fmt="yuv420p", strict="unofficial")
    content = bytearray(path.read_bytes())
    starts = [at for at in range(len(content) - 8) if content[at : at + 4] == b"00dc"]
    begin, size = starts[5] + 8, int.from_bytes(content[starts[5] + 4 : starts[5] + 8], "little")
    content[begin : begin + size] = bytes(size)
    path.write_bytes(content)
    frames, end = read(path)
    assert len(frames) == 19
    assert end == "1 damaged packet; 19 frames could be read"


@pytest.mark.parametrize(("name", "codec"), [("a.avi", "mpeg4"), ("a.mpg", "mpeg2video")])
def test_pixel_limit_is_exact(name, codec, tmp_path):
    """Decoders that want room around a frame must not be refused it."""
    path = tmp_path / name
    video(path, codec)
    limit = SIZE[0] * SIZE[1]
    assert len(list(VideoFile(path, limit).frames())) == 20
    with pytest.raises(BrokenSourceError, match="--max-pixels"):
        next(VideoFile(path, limit - 1).frames())


PLAYLISTS = {
    "concat": "ffconcat version 1.0\nfile {path}\n",
    "HLS": "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile://{path}\n#EXT-X-ENDLIST\n",
    "SDP": "v=0\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
    "DASH": '<?xml version="1.0"?><MPD type="static"><Period><AdaptationSet><Representation '
    'id="1"><BaseURL>file://{path}</BaseURL></Representation></AdaptationSet></Period></MPD>',
}


@pytest.mark.parametrize("kind", PLAYLISTS)
def test_playlist_opens_no_other_file(kind, tmp_path, monkeypatch):
    inner, outer = tmp_path / "a.ts", tmp_path / "b.mp4"
    video(inner, "libx264")
    monkeypatch.chdir(tmp_path)
    outer.write_text(PLAYLISTS[kind].format(path=inner if "HLS" in kind else "a.ts"))
    frames, end = read(outer)
    assert frames == [] and "damaged, truncated or not a video" in end


HOSTILE = {
    "text": (lambda path: path.write_text("hello\n" * 100), "damaged, truncated or not a video"),
    "empty": (lambda path: path.touch(), "damaged, truncated or not a video"),
    "FIFO": (os.mkfifo, "is a FIFO"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_broken_video_has_one_reason(kind, tmp_path, capfd):
    make, reason = HOSTILE[kind]
    path = tmp_path / "\x1b[2J\udce9.mp4"
    make(path)
    frames, end = read(path)
    assert frames == [] and reason in end
    assert "\n" not in end and len(end) < 200
    assert capfd.readouterr() == ("", "")  # nothing of FFmpeg's


def write(path: Path, seconds: list[float], size=SIZE, rate: Fraction | None = None) -> None:
    with closing(VideoWriter(path, size, rate)) as writer:
        for index, moment in enumerate(seconds):
            writer.write(picture(index, size), moment)


def test_uneven_times_and_length_are_kept(tmp_path):
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
def test_odd_side_gains_one_row_or_column(size, tmp_path):
    path = tmp_path / "a.mp4"
    write(path, [0.0, 0.1], size)
    frames = list(VideoFile(path, PIXELS).frames())
    assert frames[0].image.shape[:2] == (size[0] + size[0] % 2, size[1] + size[1] % 2)
    # H.264 at crf 20 loses a little of a plain image.
    error = frames[1].image[: size[0], : size[1]].astype(int) - picture(1, size)
    assert np.abs(error[size[0] // 2 :, size[1] // 2 :]).max() < 10


def test_interrupted_video_is_playable_and_complete_so_far(tmp_path):
    path = tmp_path / "a.mp4"
    with pytest.raises(KeyboardInterrupt), closing(VideoWriter(path, SIZE)) as writer:
        for index in range(5):
            writer.write(picture(index), index / 10)
        raise KeyboardInterrupt
    assert len(list(VideoFile(path, PIXELS).frames())) == 5
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("num_bytes", [0, 3000, 40_000])
def test_full_disk_is_one_error_and_leaves_no_video(num_bytes, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    with (
        full_disk(num_bytes),
        pytest.raises(OSError, match="File too large"),
        closing(VideoWriter(tmp_path / "a.mp4", (64, 64), 5)) as writer,
    ):
        for index in range(40):
            writer.write(np.roll(noise, index, 1), index / 5)
    assert list(tmp_path.iterdir()) == []
