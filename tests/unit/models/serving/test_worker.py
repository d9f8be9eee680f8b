"""Requests and answers of a worker, in this process."""

import io
import json
import threading

import cv2
import numpy as np
import pytest
from PIL import Image

import backend
from models import load
from models.serving import worker as worker_module
from models.serving.job import answer_requests
from models.serving.model import make_model
from models.serving.worker import Worker
from tests.tiny_tasks import tiny_classifier, tiny_segmenter
from tests.tiny_weights import CLASS_NAMES, noise, tiny_checkpoint, write_checkpoint
from utils.errors import UserError
from utils.serve.frames import Frame
from utils.serve.messages import Query, WorkerSettings
from utils.weights.load import load_weights

SIZE = 64
CONF = 0.3


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind, **options)
    return file.getvalue()


IMAGE = encoded(noise(64, 96))
LARGE = encoded(noise(96, 128))  # as the front process would call an image of many pixels


class GivenLink:
    """A link whose requests are given; it ends when all are answered."""

    def __init__(self, requests):
        self._requests = list(requests)
        self.answers = {}
        self._answered = threading.Condition()

    def receive(self):
        number = len(self._requests)
        if number:
            image, query, answer = self._requests.pop()
            header = {"id": number - 1, "query": {**vars(Query()), **query}, "answer": answer,
                      "is_large": image == LARGE}  # fmt: skip
            return Frame(header, image)
        with self._answered:
            self._answered.wait_for(lambda: len(self.answers) == self.number)
        return None

    def send(self, header, body=b""):
        with self._answered:
            assert header["id"] not in self.answers
            self.answers[header["id"]] = dict(header), body
            self._answered.notify()


def settings_of(path, **settings):
    return WorkerSettings("tiny", str(path), image_size=SIZE, device="cpu", **settings)


def answers_of(path, *requests, **settings):
    """Return the answers of a worker to requests (image, query, answer), in their order."""
    settings = settings_of(path, **settings)
    model = make_model(settings, load_weights(path))
    link = GivenLink(requests)
    link.number = len(requests)
    with Worker(model, settings, link) as worker:
        answer_requests(worker, link)
    return [link.answers[number] for number in range(len(requests))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def weights(folder):
    return write_checkpoint(folder / "tiny.safetensors", tiny_checkpoint(folder))


@pytest.fixture(scope="module")
def segmenter(folder):
    return write_checkpoint(folder / "seg.safetensors", tiny_segmenter(folder))


@pytest.fixture(scope="module")
def classifier(folder):
    return write_checkpoint(folder / "cls.safetensors", tiny_classifier(folder))


def test_what_is_found_is_what_another_program_finds(weights):
    queries = [
        {},
        {"conf": CONF},
        {"conf": 0.1, "iou": 0.9, "max_det": 3},
        {"classes": [1, 4]},
        {"agnostic": True},
    ]
    images = [IMAGE, encoded(noise(96, 64, seed=1)), encoded(noise(30, 200, seed=2), "WEBP")]
    asked = [(image, query) for query in queries for image in images]
    answers = answers_of(weights, *((image, query, "json") for image, query in asked))
    detector = load(weights, device="cpu")
    counts = set()
    for (image, query), (header, body) in zip(asked, answers, strict=True):
        (expected,) = detector(image, size=SIZE, **query)
        told = json.loads(body)
        assert told["detections"] == expected.to_dict()["detections"]
        assert told["image"] == {"width": expected.size[1], "height": expected.size[0]}
        assert told["model"] == "tiny" and header["status"] == "ok"
        assert header["count"] == len(expected) == len(told["detections"])
        counts.add(header["count"])
    assert len(counts) > 3  # the queries made a difference


def test_the_stages_add_up_to_the_whole(weights):
    for answer in ("json", "png"):
        ((header, body),) = answers_of(weights, (IMAGE, {}, answer))
        times = header["milliseconds"]
        assert list(times) == ["wait", "decode", "network", "finish", "total"]
        *stages, total = times.values()
        assert all(value >= 0 for value in stages)
        assert total == pytest.approx(sum(stages), abs=0.003)  # each is rounded to 0.001
        assert answer == "png" or json.loads(body)["milliseconds"] == times


def test_images_lie_as_exif_says(weights):
    turned = Image.Exif()
    turned[0x0112] = 6  # the row 0 is at the right
    photo = encoded(noise(64, 96), "JPEG", exif=turned)
    ((_, body),) = answers_of(weights, (photo, {}, "json"))
    assert json.loads(body)["image"] == {"width": 64, "height": 96}


@pytest.mark.parametrize(("answer", "suffix"), [("jpeg", ".jpg"), ("png", ".png")])
def test_a_picture_has_the_boxes_drawn_on_it(weights, answer, suffix):
    ((header, body),) = answers_of(weights, (IMAGE, {"conf": CONF}, answer))
    (expected,) = load(weights, device="cpu")(IMAGE, size=SIZE, conf=CONF)
    _, file = cv2.imencode(suffix, expected.plot()[..., ::-1])
    assert header["media_type"] == f"image/{answer}" and body == file.tobytes()
    assert len(expected) == header["count"] > 0


def test_a_picture_that_jpeg_cannot_hold_is_a_png(weights):
    wide = encoded(np.zeros((10, 65_501, 3), np.uint8))
    ((header, body),) = answers_of(weights, (wide, {}, "jpeg"))
    assert header["media_type"] == "image/png" and body.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (b"", "image"),
        (b"no image", "not an image"),
        (IMAGE[:-20], ""),
        (encoded(noise(9, 9)), "at least 10 px"),
        (encoded(noise(101, 101)), "over the limit of 10,000"),
    ],
)
def test_a_bad_image_is_refused_and_stalls_no_other(weights, image, text):
    asked = [(image, {}, "json"), (IMAGE, {}, "json")] * 3
    answers = answers_of(weights, *asked, max_pixels=10_000)
    for header, body in answers[::2]:
        assert header["status"] == "bad_image" and text in header["message"] and not body
    assert [header["status"] for header, _ in answers[1::2]] == ["ok"] * 3


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({"classes": [5]}, "classes 5; the model knows 0 to 4"),
        ({"conf": 2.0}, "--conf 2"),
        ({"conf": float("nan")}, "--conf nan"),
        ({"max_det": 0}, "--max-det 0"),
        ({"iou": -1.0}, "--iou -1"),
    ],
)
def test_a_query_that_the_model_cannot_honour_is_refused(weights, query, text):
    refused, answered = answers_of(weights, (IMAGE, query, "json"), (IMAGE, {}, "json"))
    assert refused[0]["status"] == "refused" and text in refused[0]["message"]
    assert answered[0]["status"] == "ok"


def test_a_defect_in_one_stage_is_an_answer_too(weights, monkeypatch, caplog):
    def fails(*given):
        raise RuntimeError("a defect")

    monkeypatch.setattr(worker_module, "json_of", fails)
    failed, drawn = answers_of(weights, (IMAGE, {}, "json"), (IMAGE, {}, "png"))
    assert failed[0]["status"] == "failed" and "log" in failed[0]["message"]
    assert drawn[0]["status"] == "ok" and "RuntimeError: a defect" in caplog.text


def test_a_network_that_fails_answers_all_of_its_batch(weights, monkeypatch):
    monkeypatch.setattr(worker_module.Worker, "_predict", lambda self, batch: 1 / 0)
    answers = answers_of(weights, *[(IMAGE, {}, "json")] * 3)
    assert [header["status"] for header, _ in answers] == ["failed"] * 3


def test_what_a_runtime_says_of_its_failure_is_told(weights, monkeypatch):
    def fails(self, batch):
        raise UserError("ONNX Runtime failed: too large")

    monkeypatch.setattr(worker_module.Worker, "_predict", fails)
    ((header, _),) = answers_of(weights, (IMAGE, {}, "json"))
    assert (header["status"], header["message"]) == ("failed", "ONNX Runtime failed: too large")


def test_large_images_are_answered_one_after_the_other(weights, monkeypatch):
    decode, end, begun, most = Worker._decode, Worker._end, set(), []

    def decodes(self, work):
        if work.is_large:
            begun.add(work.number)
            most.append(len(begun))
        decode(self, work)

    def ends(self, work, *answer):
        begun.discard(work.number)
        end(self, work, *answer)

    monkeypatch.setattr(Worker, "_decode", decodes)
    monkeypatch.setattr(Worker, "_end", ends)
    asked = [(LARGE, {}, "json")] * 3 + [(b"bad", {}, "json"), (IMAGE, {}, "json")]
    answers = answers_of(weights, *asked)
    assert [header["status"] for header, _ in answers] == ["ok"] * 3 + ["bad_image", "ok"]
    assert most == [1, 1, 1]


def given_up_before(weights, monkeypatch, stage):
    """Return the answers to an image that is given up before a stage, and to another one."""
    begin = getattr(Worker, stage)

    def begins(self, given):
        for work in given if isinstance(given, list) else [given]:
            if work.number == 0:
                self.give_up(0)
        return begin(self, given)

    monkeypatch.setattr(Worker, stage, begins)
    return answers_of(weights, (IMAGE, {}, "json"), (IMAGE, {}, "png"))


@pytest.mark.parametrize("stage", ["_begin", "_decode", "_wanted", "_finish"])
def test_what_is_given_up_goes_through_no_further_stage(weights, monkeypatch, stage):
    done = []
    for name in ("decode_image", "json_of"):
        work = getattr(worker_module, name)
        monkeypatch.setattr(
            worker_module, name, lambda *given, _n=name, _w=work: (done.append(_n), _w(*given))[1]
        )
    (dropped, nothing), (answered, _) = given_up_before(weights, monkeypatch, stage)
    assert dropped["status"] == "given_up" and not nothing and answered["status"] == "ok"
    assert "json_of" not in done
    assert done.count("decode_image") == (1 if stage in ("_begin", "_decode") else 2)


def test_a_cancel_frame_gives_up_what_is_under_way_and_nothing_else():
    given_up = []

    class Given:
        def __init__(self):
            self.frames = [Frame({"cancel": 7}), None]

        def receive(self):
            return self.frames.pop(0)

    class Worker:
        give_up = given_up.append

    answer_requests(Worker(), Given())
    assert given_up == [7]


def test_giving_up_what_is_answered_or_unknown_does_nothing(weights):
    settings = settings_of(weights)
    with Worker(make_model(settings, load_weights(weights)), settings, GivenLink([])) as worker:
        worker.give_up(99)


def test_an_image_without_objects_has_an_empty_list(weights):
    ((header, body),) = answers_of(weights, (IMAGE, {"conf": 1.0}, "json"))
    assert json.loads(body)["detections"] == [] and header["count"] == 0


def test_masks_come_with_their_outlines(segmenter):
    ((_, body),) = answers_of(segmenter, (IMAGE, {"conf": CONF}, "json"))
    (expected,) = load(segmenter, device="cpu")(IMAGE, size=SIZE, conf=CONF)
    found = json.loads(body)["detections"]
    assert len(found) == len(expected) > 0
    for record, outline, saved in zip(
        found, expected.outlines, expected.to_dict()["detections"], strict=True
    ):
        assert np.array_equal(np.array(record.pop("outline")).reshape(-1, 2), outline)
        assert record == saved


def test_classes_of_a_classifier(classifier):
    answered, refused = answers_of(classifier, (IMAGE, {}, "json"), (IMAGE, {"conf": 0.5}, "json"))
    (expected,) = load(classifier, device="cpu")(IMAGE, size=SIZE)
    assert json.loads(answered[1])["classes"] == expected.to_dict()["classes"]
    assert refused[0]["status"] == "refused" and "--conf" in refused[0]["message"]


def test_what_is_told_of_a_model(weights):
    about = make_model(settings_of(weights), load_weights(weights)).about()
    assert about == {
        "name": "tiny",
        "task": "detect",
        "class_names": list(CLASS_NAMES),
        "image_size": SIZE,
        "runs_in": backend.device.describe("cpu"),
        "max_batch": 1,
    }
