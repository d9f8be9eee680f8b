"""The page of a running server, and the boxes that the server itself gives."""

import json

import cv2
import numpy as np
import pytest

from tests.serve_page import ServePage
from tests.tiny_weights import CLASS_NAMES, noise, write_tiny_weights
from tests.unit.serve.running import running


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A server of the smallest detector, converted as usual."""
    weights = write_tiny_weights(tmp_path_factory.mktemp("weights"))
    flags = "--weights", weights, "--img", 64, "--device", "cpu"
    with running(*flags, command=("-m", "utils.serve")) as server:
        yield server


def test_the_page_shows_the_boxes_of_the_server_at_any_threshold(browser, real, tmp_path):
    path = tmp_path / "image.png"
    cv2.imwrite(str(path), noise(70, 96))
    page = ServePage(browser, f"http://127.0.0.1:{real.port}")
    page.open()
    assert page.choose(path).split()[1] == "found:"
    compared = []
    for conf, iou in ((0.01, 0.0), (0.01, 0.45), (0.2, 0.3), (0.3, 0.6), (0.25, 1.0)):
        page.set("confidence", conf)
        page.set("overlap", iou)
        query = f"/v1/detect?conf={conf}&iou={iou}"
        expected = json.loads(real.ask(query, path.read_bytes()).body)["detections"]
        for record in expected:
            record.pop("network_xyxy", None)
        assert page.copied()["detections"] == expected
        compared.append(len(expected))
    assert min(compared) > 0 and len(set(compared)) > 3
    assert page.page.complaints() == []
    assert {found["name"] for found in expected} <= set(CLASS_NAMES)


def test_boxes_that_nms_compares_are_told_where_it_removes_none(real):
    image = cv2.imencode(".png", noise(64, 64))[1].tobytes()  # the network's own size
    with_iou = {
        iou: real.ask(f"/v1/detect?iou={iou}", image).json["detections"] for iou in (1, 0.9)
    }
    assert len(with_iou[1]) >= len(with_iou[0.9]) > 0
    assert not any("network_xyxy" in record for record in with_iou[0.9])
    boxes, compared = (np.array([r[name] for r in with_iou[1]], np.float32)
                       for name in ("box_xyxy", "network_xyxy"))  # fmt: skip
    assert (compared.clip(0, 64) == boxes).all() and (compared != boxes).any()
