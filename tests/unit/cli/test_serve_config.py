"""The flags of the server: names of models, bounds, and the defaults of detect.py."""

import shlex

import pytest

from duet.utils.detect.config import DetectConfig
from duet.utils.errors import UserError
from duet.utils.serve.config import parse_serve_flags


def parse(flags: str):
    return parse_serve_flags(shlex.split(flags))


def test_a_model_is_called_as_its_file_unless_it_has_a_name():
    models = parse(
        "--weights runs/a/best.pt night=runs/a=b/best.pt ./x=y.pt openvino_model/"
    ).models
    assert [tuple(model) for model in models] == [
        ("best", "runs/a/best.pt"),
        ("night", "runs/a=b/best.pt"),
        ("x=y", "./x=y.pt"),
        ("openvino_model", "openvino_model/"),
    ]


def test_what_detect_has_too_has_its_default():
    config = parse("--weights W")
    for name in ("confidence_threshold", "iou_threshold", "max_detections", "image_size",
                 "max_pixels", "device", "backend", "runtime", "half"):  # fmt: skip
        assert getattr(config, name) == getattr(DetectConfig, name)
    assert (config.host, config.is_size_given) == ("127.0.0.1", False)
    assert parse("--weights W --img 640").is_size_given


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("", "--weights is needed"),
        ("--weights =b", "a model's name has printable"),
        ("--weights ' ' x", "--weights"),
        ("--weights a/best.pt b/best.pt", "two models the name 'best'; name them apart, as in"),
        ("--weights \x1b=b", "--weights '\\x1b'=...; a model's name"),
        ("--weights W --port 65536", "--port 65536; a whole number from 0 to 65535 is needed"),
    ],
)
def test_a_value_out_of_bounds_is_refused(flags, words):
    with pytest.raises(UserError) as caught:
        parse(flags)
    assert words in str(caught.value)
