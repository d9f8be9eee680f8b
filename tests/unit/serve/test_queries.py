"""The query of a request: each parameter, its bounds, and what a query may look like."""

import pytest

from utils.cli.serve_config import ServeConfig
from utils.errors import UserError
from utils.serve.failures import RequestError
from utils.serve.messages import Query
from utils.serve.queries import MOST_CLASSES, read_query, require_detections

DEFAULTS = Query(0.3, 0.6, 100)


def test_what_a_query_leaves_out_is_the_default():
    assert read_query(b"", DEFAULTS) == (None, DEFAULTS)
    assert read_query(b"model=day+1&iou=0", DEFAULTS) == ("day 1", Query(0.3, 0.0, 100))
    assert read_query(b"model=%E7%8C%AB", DEFAULTS).model == "猫"


def test_each_value_is_read():
    text = b"conf=1e-3&iou=1&max_det=5&classes=7,0&agnostic=1"
    assert read_query(text, DEFAULTS).query == Query(0.001, 1.0, 5, (7, 0), True)
    assert read_query(b"agnostic=false", DEFAULTS).query.agnostic is False


@pytest.mark.parametrize(("task", "most"), [("detect", "5,000"), ("segment", "1,000")])
def test_more_detections_than_a_page_needs_are_refused(task, most):
    number = int(most.replace(",", ""))
    require_detections(Query(max_det=number), task)
    with pytest.raises(RequestError, match=f"max_det {number + 1}; at most {most} are") as caught:
        require_detections(Query(max_det=number + 1), task)
    assert (caught.value.status, caught.value.code) == (400, "bad_request")


def test_the_default_is_no_more_than_any_model_accepts():
    assert ServeConfig(("a.pt",), max_detections=1000).max_detections == 1000
    with pytest.raises(UserError, match="--max-det 1001; a whole number from 1 to 1,?000"):
        ServeConfig(("a.pt",), max_detections=1001)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("conf=", "conf ''; a number is needed"),
        ("conf=inf", "conf inf; a number from 0 to 1 is needed"),
        ("conf=-0.1", "conf -0.1; a number from 0 to 1"),
        ("iou=1.01", "iou 1.01; a number from 0 to 1"),
        ("iou=1,0", "iou '1,0'; a number is needed"),
        ("max_det=1.5", "max_det '1.5'; a whole number is needed"),
        ("max_det=-1", "max_det -1; a whole number from 1 up is needed"),
        ("max_det=" + 5000 * "9", "max_det '9999"),
        ("max_det=%EF%BC%91", "max_det '１'; a whole number is needed"),
        ("classes=", "classes ''; a whole number is needed"),
        ("classes=0,,1", "classes ''; a whole number is needed"),
        ("classes=-1", "classes -1; a whole number from 0 up is needed"),
        ("classes=" + ",".join(["0"] * (MOST_CLASSES + 1)), "classes: at most 10,000 are accepted"),
        ("agnostic=yes", "agnostic 'yes'; accepted: true, 1, false, 0"),
        ("agnostic", "agnostic ''; accepted: true"),
        ("Conf=0.5", "'Conf' is no query parameter; accepted: model, conf, iou, max_det, classes"),
        ("model=a&model=b", "model stands twice in the query"),
        ("%1b[31m=1", "'\\x1b[31m' is no query parameter"),
        ("model=%ff", "the query cannot be read: "),
        ("&".join(["conf=0.5"] * 33), "the query cannot be read: 'Max number of fields exceeded'"),
        ("model=\xff", "the query cannot be read: "),
    ],
)
def test_what_is_not_accepted_is_answered_by_what_is(text, words):
    with pytest.raises(RequestError) as caught:
        read_query(text.encode("latin-1"), DEFAULTS)
    assert (caught.value.status, caught.value.code) == (400, "bad_request")
    assert str(caught.value).startswith(words) and len(str(caught.value)) < 400
