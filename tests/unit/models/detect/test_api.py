"""`duet.load` and its results, with and without anchors."""

import copy
import io
import pickle
import threading
from contextlib import closing
from fractions import Fraction

import cv2
import numpy as np
import pytest
from PIL import Image

from duet import backend, load
from duet.models.detect.settings import make_detector
from duet.utils.detect.config import parse_detect_flags
from duet.utils.detect.media.video import VideoWriter
from duet.utils.errors import UserError
from duet.utils.weights.load import load_to_detect
from tests.small import (
    CLASS_NAMES,
    STRIDE,
    noise,
    write_tiny_free_weights,
    write_tiny_weights,
)

IMAGE = noise(64, 96)
SIZE = 64


@pytest.fixture(scope="module")
def detector(weights):
    return load(weights, device="cpu")


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind, **options)
    return file.getvalue()


def rows(result):
    """All that was found, (K, 6) float64."""
    columns = (result.boxes_xyxy, result.scores[:, None], result.class_index[:, None])
    return np.concatenate(columns, axis=1, dtype=np.float64)


def assert_same(results, others):
    assert len(results) == len(others)
    for result, other in zip(results, others, strict=True):
        assert len(result) > 0
        np.testing.assert_array_equal(rows(result), rows(other))


def test_detector_describes_itself_and_names_its_classes(detector):
    classes = f"{len(CLASS_NAMES)} classes"
    assert repr(detector) == f"TrainedDetector(detect, {classes}, on cpu, stride {STRIDE})"
    assert detector.names == dict(enumerate(CLASS_NAMES))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copying_a_detector_is_refused_with_the_alternative(detector, copied):
    with pytest.raises(TypeError, match="threads may share it, and each process loads its own"):
        copied(detector)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_result_keeps_its_image_when_the_array_is_reused(detector, channels):
    given = IMAGE[..., 0].copy() if channels == 1 else np.resize(IMAGE, (64, 96, channels))
    (result,) = detector(given, size=SIZE)
    before = result.image.copy()
    given[:] = 0
    np.testing.assert_array_equal(result.image, before)
    assert before.any()


def test_notebook_shows_the_drawn_image(detector):
    (result,) = detector(IMAGE, size=SIZE)
    shown = cv2.imdecode(np.frombuffer(result._repr_png_(), np.uint8), cv2.IMREAD_COLOR_RGB)
    np.testing.assert_array_equal(shown, result.plot())


def test_classes_are_given_by_number_or_name(detector):
    (by_name,) = detector(IMAGE, size=SIZE, classes=[CLASS_NAMES[1]])
    (by_number,) = detector(IMAGE, size=SIZE, classes=[1])
    assert_same([by_name], [by_number])
    with pytest.raises(UserError, match=f"did you mean '{CLASS_NAMES[1]}'"):
        detector(IMAGE, size=SIZE, classes=[CLASS_NAMES[1] + "s"])
    with pytest.raises(UserError, match="accepted: a list of class numbers or names"):
        detector(IMAGE, size=SIZE, classes=CLASS_NAMES[1])


def test_classes_flag_takes_numbers_or_names(weights):
    words = ["--weights", str(weights), "--device", "cpu", "--classes", CLASS_NAMES[2], "0"]
    detector = make_detector(parse_detect_flags(words), [load_to_detect(str(weights))])
    assert detector.suppression.classes == (2, 0)


def test_one_image_gives_one_result_of_numpy_fields(detector):
    (result,) = detector(IMAGE, size=SIZE)
    assert (detector.class_names, detector.device, detector.stride) == (CLASS_NAMES, "cpu", STRIDE)
    assert len(result) > 10
    assert (result.boxes_xyxy.shape, result.boxes_xyxy.dtype) == ((len(result), 4), np.float32)
    assert (result.scores.shape, result.scores.dtype) == ((len(result),), np.float32)
    assert (result.class_index.shape, result.class_index.dtype) == ((len(result),), np.int64)
    assert result.names == [CLASS_NAMES[index] for index in result.class_index]
    assert (np.diff(result.scores) <= 0).all() and result.scores.min() > 0.25
    assert result.boxes_xyxy.min() >= 0
    assert (result.boxes_xyxy.max(axis=0) <= (96, 64, 96, 64)).all()
    np.testing.assert_array_equal(result.image, IMAGE)


def test_every_kind_of_input_gives_the_same_result(detector, tmp_path):
    path = tmp_path / "一.png"
    path.write_bytes(encoded(IMAGE))
    every_other = np.repeat(np.frombuffer(path.read_bytes(), np.uint8), 2)
    alpha = np.dstack([IMAGE, np.full((64, 96), 255, np.uint8)])
    given = [
        str(path), path, path.read_bytes(), bytearray(path.read_bytes()),
        memoryview(path.read_bytes() + bytes(9))[:-9], memoryview(every_other)[::2],
        IMAGE, IMAGE[::-1].copy()[::-1], alpha,
        Image.fromarray(IMAGE), Image.fromarray(alpha), Image.open(path),
    ]  # fmt: skip
    results = detector(given, size=SIZE)
    assert_same(results, detector(IMAGE, size=SIZE) * len(given))
    sources = [result.frame.source for result in results]
    assert sources[:3] == [path, path, "image2"] and sources[6] == "image6"
    assert str(sources[-1]) == str(path)


def test_rotated_photo_is_seen_upright(detector):
    exif = Image.Exif()
    exif[0x0112] = 6  # show it turned by a quarter to the right
    content = encoded(np.rot90(IMAGE), exif=exif)
    for given in (content, Image.open(io.BytesIO(content))):
        (result,) = detector(given, size=SIZE)
        np.testing.assert_array_equal(result.image, IMAGE)


def test_each_option_has_its_effect(detector):
    (plain,) = detector(IMAGE, size=SIZE)
    (sure,) = detector(IMAGE, size=SIZE, conf=0.9)
    # Fewer rows are decoded with a higher threshold, perhaps by other instructions: rounding.
    np.testing.assert_allclose(rows(sure), rows(plain)[plain.scores > 0.9], rtol=1e-6)
    (few,) = detector(IMAGE, size=SIZE, max_det=3)
    np.testing.assert_array_equal(rows(few), rows(plain)[:3])
    (some,) = detector(IMAGE, size=SIZE, classes=[1, np.int64(2)])
    np.testing.assert_array_equal(rows(some), rows(plain)[np.isin(plain.class_index, (1, 2))])
    assert len(detector(IMAGE, size=SIZE, classes=[])[0]) == 0
    (large,) = detector(IMAGE, size=128)
    assert len(large) != len(plain)


def test_shrinking_is_bilinear_as_in_yolov5(detector):
    image = np.random.default_rng(0).integers(0, 256, (192, 256, 3), np.uint8)
    small = cv2.resize(image, (SIZE, 48), interpolation=cv2.INTER_LINEAR)
    (found,), (expected,) = detector(image, size=SIZE), detector(small, size=SIZE)
    assert len(found)
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_unsupported_input_is_refused(detector):
    closed = Image.fromarray(IMAGE)
    closed.close()
    cases = {
        "image0 is an array of float32, not uint8": IMAGE.astype(np.float32) / 255,
        r"shape \(3, 64, 96\)": IMAGE.transpose(2, 0, 1),
        r"shape \(64, 96, 2\)": IMAGE[..., :2],
        "image0 is of type dict": {},
        "image1 is of type int": [IMAGE, 3],
        "an iterator needs detector.stream": iter([IMAGE]),
        "image0 is of type BytesIO; accepted: a file name": io.BytesIO(b""),
        "nothing is downloaded": "https://example.com/bus.jpg",
        "image0: Operation on closed image": closed,
        "image0: conversion from La to L not supported": Image.fromarray(IMAGE).convert("La"),
    }
    for message, given in cases.items():
        with pytest.raises(UserError, match=message):
            detector(given, size=SIZE)


def test_unreadable_file_error_names_the_file(detector, tmp_path):
    text = tmp_path / "words\x1b[31m.jpg"
    text.write_text("no image")
    cut = tmp_path / "cut.png"
    cut.write_bytes(encoded(IMAGE)[:200])
    cases = {
        r"words\\x1b\[31m.jpg: not an image": text,
        "cut.png: ": cut,
        "absent.jpg: No such file": tmp_path / "absent.jpg",
        "is a folder": tmp_path,
        "image0: ": b"",
        "null (byte|character)": "a\0.jpg",
    }
    for message, given in cases.items():
        with pytest.raises(UserError, match=message):
            detector(given, size=SIZE)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"size": 100}, "--img 100 is not a multiple of the model's stride 16; use 112"),
        ({"conf": 2}, "--conf 2"),
        ({"conf": "high"}, "conf 'high'; accepted: a number"),
        ({"classes": [0, 5]}, "classes 5; the model has classes 0 to 4"),
        ({"classes": ["0,1"]}, "classes '0,1': .*; separate classes with spaces"),
        ({"classes": ["x"]}, "classes 'x': the model has [^.]*$"),  # five names, no "..."
        ({"overlap": 0.2}, "--overlap 0.2 is the overlap of tiles"),
    ],
)
def test_wrong_option_is_named(detector, option, message):
    for use in (detector, detector.stream):
        with pytest.raises(UserError, match=message):
            use(IMAGE, **{"size": SIZE, **option})


def test_call_option_cannot_be_set_as_attribute(detector):
    """YOLOv5's hub models take `model.conf = 0.9`; ignoring it would give other detections."""
    for name, value in {"conf": 0.9, "iou": 0.3, "classes": [0], "size": SIZE}.items():
        with pytest.raises(AttributeError, match=f"an option of a call: .*{name}="):
            setattr(detector, name, value)


def test_loading_error_names_the_fault(weights, tmp_path):
    other = {"torch": "oneflow", "oneflow": "torch"}[backend.use()]
    cases = {
        "absent.safetensors: no such file": ([tmp_path / "absent.safetensors"], {}),
        "device 'tpu'": ([weights], {"device": "tpu"}),
        "unknown backend 'jax'": ([weights], {"backend": "jax"}),
        f"already uses '{backend.use()}'": ([weights], {"backend": other}),
        r"weights: \[\]; accepted: a file": ([[]], {}),
        "weights: ''; accepted: a file": ([""], {}),
        "weights: None; accepted: a file": ([None], {}),
    }
    for message, (arguments, options) in cases.items():
        with pytest.raises(ValueError, match=message):
            load(*arguments, **options)


def test_concurrent_threads_get_single_thread_results(detector):
    images = [noise(48 + 8 * seed, 96, seed) for seed in range(8)]
    serial = [detector(image, size=SIZE, conf=0.5 + seed / 20) for seed, image in enumerate(images)]
    found = {}
    start = threading.Barrier(len(images))

    def work(seed):
        start.wait()
        for _ in range(3):
            found.setdefault(seed, []).append(
                detector(images[seed], size=SIZE, conf=0.5 + seed / 20)
            )

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(len(images))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, expected in enumerate(serial):
        assert len(found[seed]) == 3
        for results in found[seed]:
            assert_same(results, expected)


def test_stream_reads_no_further_than_its_batch(detector):
    read = []

    def images():
        for seed in range(1000):
            read.append(seed)
            yield noise(64, 96, seed)

    stream = detector.stream(images(), size=SIZE, batch=2)
    assert read == []
    next(stream)
    assert read == [0, 1]


@pytest.mark.parametrize("kind", ["images", "video"])
def test_closed_stream_ends_its_threads(detector, video, kind):
    before = set(threading.enumerate())
    stream = detector.stream([IMAGE] * 50 if kind == "images" else video, size=SIZE)
    assert set(threading.enumerate()) == before  # nothing begins before the first result
    next(stream)
    assert {thread.name.split("_")[0] for thread in set(threading.enumerate()) - before} == {kind}
    stream.close()
    assert set(threading.enumerate()) == before


def test_stream_names_broken_files_and_continues(detector, tmp_path, caplog):
    for name in ("a.png", "c.png"):
        (tmp_path / name).write_bytes(encoded(IMAGE))
    (tmp_path / "b.png").write_text("no image")
    for source in (str(tmp_path), sorted(tmp_path.iterdir())):
        caplog.clear()
        results = list(detector.stream(source, size=SIZE))
        assert [result.frame.source.name for result in results] == ["a.png", "c.png"]
        (line,) = caplog.messages
        assert "b.png: not an image" in line


@pytest.fixture
def video(tmp_path):
    pytest.importorskip("av")
    path = tmp_path / "clip.mp4"
    with closing(VideoWriter(path, IMAGE.shape[:2], Fraction(10))) as writer:
        for number in range(6):
            writer.write(np.roll(IMAGE, 2 * number, axis=1), number / 10)
    return path


def test_video_stream_yields_its_frames(detector, video):
    results = list(detector.stream(video, size=SIZE))
    assert [result.frame.number for result in results] == list(range(6))
    np.testing.assert_allclose([result.frame.seconds for result in results], np.arange(6) / 10)
    images = [result.image for result in results]
    for result, (alone,) in zip(
        results, (detector(image, size=SIZE) for image in images), strict=True
    ):
        np.testing.assert_array_equal(rows(result), rows(alone))
    some = detector.stream([video, video], size=SIZE, vid_stride=3)
    assert [result.frame.number for result in some] == [0, 3, 0, 3]
    with pytest.raises(UserError, match="vid_stride 0"):
        detector.stream(video, vid_stride=0)


def test_tracked_stream_confirms_objects_in_second_frame(detector):
    pytest.importorskip("trackers")
    results = list(detector.stream([IMAGE] * 4, size=SIZE, conf=0.5, max_det=20, track=True))
    assert [result.track_ids.dtype for result in results] == [np.int64] * 4
    (first, second), others = results[:2], results[2:]
    assert (first.track_ids == -1).all()  # the second frame confirms an object
    assert (second.track_ids > 0).any()
    for other in others:
        kept = set(second.track_ids[second.track_ids > 0]) & set(other.track_ids)
        assert kept == set(second.track_ids[second.track_ids > 0])
    (plain,) = detector.stream(IMAGE, size=SIZE)
    assert plain.track_ids is None


@pytest.fixture(scope="module")
def free(tmp_path_factory):
    return write_tiny_free_weights(tmp_path_factory.mktemp("weights"))


def as_set(result):
    return {tuple(row) for row in np.round(rows(result), 3).tolist()}


def test_ensemble_of_both_head_kinds_joins_member_rows(free, weights):
    options = {"size": SIZE, "iou": 1.0, "max_det": 10_000}
    alone = [as_set(load(path, device="cpu")(IMAGE, **options)[0]) for path in (free, weights)]
    for pair in ((free, weights), (weights, free)):
        (both,) = load(pair, device="cpu")(IMAGE, **options)
        assert as_set(both) == alone[0] | alone[1]


def test_default_size_is_the_training_size(detector, tmp_path, caplog):
    trained = load(write_tiny_weights(tmp_path, trained_size=SIZE), device="cpu")
    assert_same(trained(IMAGE), detector(IMAGE, size=SIZE))
    assert_same(list(trained.stream([IMAGE])), detector(IMAGE, size=SIZE))
    assert caplog.messages == []
    assert_same(trained(IMAGE, size=320), detector(IMAGE, size=320))
    assert_same(trained(IMAGE, size=320), trained(IMAGE, size=320))
    (line,) = caplog.messages
    assert line.endswith("trained at 64 px, used at 320 px: expect worse results")


def test_tile_is_resized_to_the_training_size(detector, tmp_path):
    trained = load(write_tiny_weights(tmp_path, trained_size=SIZE), device="cpu")
    image, tiles = noise(200, 200), {"tile": 100}
    assert_same(trained(image, **tiles), detector(image, size=SIZE, **tiles))
