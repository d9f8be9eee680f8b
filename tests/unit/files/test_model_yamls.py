"""Model YAMLs found by name: as given, in models/ and in models/hub/, with and without .yaml."""

import pytest

from duet.utils.errors import UserError
from duet.utils.files.model_yamls import find_model, read_model, shipped_model
from duet.utils.project import PROJECT


@pytest.mark.parametrize(
    ("argument", "found"),
    [
        ("yolov5s", "models/yolov5s.yaml"),
        ("yolov5s.yaml", "models/yolov5s.yaml"),
        ("yolov5s6", "models/hub/yolov5s6.yaml"),
        ("models/hub/yolov5-p2.yaml", "models/hub/yolov5-p2.yaml"),
    ],
)
def test_model_name_is_found_unless_a_file_exists(argument, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "yolov5s").mkdir()
    assert find_model(argument) == PROJECT / found
    (tmp_path / "yolov5s6").write_text("nc: 1")
    path, document = read_model("yolov5s6")
    assert path.read_text() == "nc: 1" and document == {"nc": 1}
    assert shipped_model("yolov5s6") == PROJECT / "models/hub/yolov5s6.yaml"


@pytest.mark.parametrize(
    ("argument", "near"),
    [
        ("yolov5xs", "did you mean yolov5x or yolov5s or "),
        ("models/yolov5-p9.yaml", "did you mean yolov5-p7 or yolov5-p6"),
        ("resnet", "no such file or public model; accepted: a model YAML, or one of"),
        *((name, "--cfg ") for name in (".", "..", "hub", "a/b/c", "x" * 200)),
    ],
)
def test_unknown_model_name_lists_nearest_and_all(argument, near, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        read_model(argument)
    text = str(caught.value)
    assert text.startswith(f"--cfg {argument}: ") and near in text
    assert "the same with 6, u or 6u, yolov8{n,s,m,l,x}, yolov3" in text
