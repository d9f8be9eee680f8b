"""Model YAMLs found by name: as given, in models/ and in models/hub/, with and without .yaml."""

import pytest

from utils.errors import UserError
from utils.files.models import find_model, read_model, shipped_model
from utils.files.project import PROJECT


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        ("yolov5s", "models/yolov5s.yaml"),
        ("yolov5s.yaml", "models/yolov5s.yaml"),
        ("yolov5s6", "models/hub/yolov5s6.yaml"),
        ("yolov5-p2", "models/hub/yolov5-p2.yaml"),
        ("models/hub/yolov5-p2.yaml", "models/hub/yolov5-p2.yaml"),
        ("yolov5s-LeakyReLU.yaml", "models/hub/yolov5s-LeakyReLU.yaml"),
    ],
)
def test_a_name_is_found_anywhere(argument, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_model(argument) == PROJECT / found


@pytest.mark.parametrize(
    ("argument", "near"),
    [
        ("yolov5xs", "yolov5x or yolov5s or "),
        ("models/yolov5-p9.yaml", "yolov5-p7 or yolov5-p6"),
    ],
)
def test_a_name_that_is_none_is_answered_with_the_nearest(argument, near):
    with pytest.raises(UserError) as caught:
        read_model(argument)
    text = str(caught.value)
    assert text.startswith(f"--cfg {argument}: there is no such file and no public model")
    assert f"did you mean {near}" in text and "yolov5{n,s,m,l,x}" in text


def test_a_name_that_is_like_no_model_is_answered_with_all():
    with pytest.raises(UserError, match="of this name; give a model YAML, or the name of one"):
        read_model("resnet")


def test_a_file_that_is_there_goes_first_and_a_folder_does_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "yolov5s").mkdir()
    assert find_model("yolov5s") == PROJECT / "models/yolov5s.yaml"
    (tmp_path / "yolov5s6").write_text("nc: 1")
    path, document = read_model("yolov5s6")
    assert path.read_text() == "nc: 1" and document == {"nc": 1}
    assert shipped_model("yolov5s6") == PROJECT / "models/hub/yolov5s6.yaml"


@pytest.mark.parametrize("argument", ["yolov5q", ".", "..", "hub", "a/b/c", "x" * 200])
def test_another_name_is_refused_with_the_public_models(argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"--cfg .*yolov5\{n,s,m,l,x\}6, yolov3"):
        read_model(argument)
