"""docs/examples/export/python finds in a picture what detect.py finds with the weights."""

import ast

import pytest

from tests.export.examples.examples import (
    NOT_RESIZED,
    PYTHON,
    SIZES,
    TIE_IOU,
    TIE_SCORE,
    assert_same,
    by_python,
    run_python,
    tiny,
    with_nms,
)


@pytest.mark.parametrize("name", SIZES)
def test_python_example_matches_detect(name):
    tolerances = () if name in NOT_RESIZED else (TIE_SCORE, TIE_IOU)
    assert_same(by_python(tiny(), name), tiny().found[name], *tolerances)


def test_python_example_does_not_import_duet():
    nodes = list(ast.walk(ast.parse(PYTHON.read_text(encoding="utf-8"))))
    names = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert names == {"json", "sys", "numpy", "onnxruntime", "PIL"}


def test_python_example_refuses_a_file_with_nms():
    with pytest.raises(SystemExit, match="or one with NMS"):
        run_python(PYTHON, with_nms(), tiny().picture("square"))


def test_unopenable_file_is_one_message(tmp_path):
    weights = tmp_path / "x.pt"
    weights.write_bytes(b"no graph")
    absent = tmp_path / "absent.jpg"
    for files in ((), (tiny().model,), (tiny().model, absent), (weights, absent)):
        with pytest.raises(SystemExit, match="^usage: .* FILE PICTURE; "):
            run_python(PYTHON, *files)
