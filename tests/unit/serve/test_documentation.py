"""/openapi.json against what the server does, and its examples against what models find."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.serve.running import image_file
from utils.detections import Classification, Detections, Segmentations
from utils.masks.runs import from_text, mask_of_runs, runs_of_mask
from utils.media.frame import Frame
from utils.ragged import Ragged
from utils.serve.documentation import DETECT, FOUND, with_example
from utils.serve.queries import NAMES
from utils.tasks.table import TASKS

FRAME = Frame(np.zeros((480, 640, 3), np.uint8), "a.jpg")
BOX = (np.array([[1, 2, 30, 40]], np.float32), np.array([0.5], np.float32), np.array([0]))
FOUND_BY_TASK = {
    "detect": Detections(*BOX),
    "segment": Segmentations(*BOX, Ragged.of([runs_of_mask(np.eye(480, 640) > 0)], np.uint32)),
    "classify": Classification(np.array([[1.0]], np.float32)),
}


def described(server) -> dict:
    return server.ask("/openapi.json").json


def kinds(value):
    """The names of a JSON value, with the kinds of what they hold."""
    if isinstance(value, dict):
        return {name: kinds(part) for name, part in value.items()}
    return [kinds(part) for part in value[:1]] if isinstance(value, list) else type(value)


@pytest.mark.parametrize("name", TASKS)
def test_an_example_has_the_form_of_what_a_model_of_the_task_finds(name):
    result = TASKS[name].result(FRAME, FOUND_BY_TASK[name], ("person",))
    assert kinds(FOUND[name]) == kinds(result.drawable_records())


def test_the_mask_of_the_example_fills_its_box():
    (found,) = FOUND["segment"]["detections"]
    runs = from_text(found["segmentation"]["counts"])
    mask = mask_of_runs(runs, tuple(found["segmentation"]["size"]))
    left, top, right, bottom = map(round, found["box_xyxy"])
    assert mask[top:bottom, left:right].all() and mask.sum() == (bottom - top) * (right - left)


def test_the_example_is_that_of_the_default_model(server):
    (answer,) = [described(server)["paths"][DETECT]["post"]["responses"]["200"]]
    example = answer["content"]["application/json"]["example"]
    assert example["detections"] and example["image"] == {"width": 640, "height": 480}
    other = with_example(described(server), "classify")["paths"][DETECT]["post"]["responses"]["200"]
    assert "classes" in other["content"]["application/json"]["example"]


def test_every_described_path_is_there_with_its_method_and_others_are_not(server):
    paths = described(server)["paths"]
    assert set(paths) == {"/healthz", "/readyz", "/metrics", "/v1/model", DETECT}
    for path, methods in paths.items():
        for method in ("GET", "POST"):
            found = server.ask(path, image_file() if method == "POST" else None, method)
            assert (found.status == 200) == (method.lower() in methods), (path, method)


def test_each_described_parameter_is_accepted_with_its_example(server):
    parameters = described(server)["paths"][DETECT]["post"]["parameters"]
    assert tuple(parameter["name"] for parameter in parameters) == NAMES
    for parameter in parameters[1:]:  # the model has a name of its own
        value = str(parameter["example"]).lower()
        assert server.ask(f"{DETECT}?{parameter['name']}={value}", image_file()).status == 200


def test_errors_are_described_as_they_are_sent(server):
    answers = described(server)["paths"][DETECT]["post"]["responses"]
    sent = server.ask(f"{DETECT}?conf=2", image_file())
    assert answers["400"]["content"]["application/json"]["example"] == sent.json
    assert set(answers) > {"200", "400", "401", "404", "406", "408", "413", "415", "422", "429"}
