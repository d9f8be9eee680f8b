"""What a file says of itself is parsed, never evaluated, and every field has a type and a range."""

import pytest

from duet.utils.errors import UserError
from duet.utils.export.metadata import metadata_of
from tests.onnx_files import CLASSES, SIDE, own_texts


def test_a_text_of_another_program_does_not_matter():
    assert metadata_of({**own_texts(), "author": "{"}).class_names == CLASSES


@pytest.mark.parametrize(
    "name, value",
    [
        ("class_names", ["cat", 7]),
        ("class_names", ["x" * 1001]),
        ("class_names", ["x"] * 10_001),
        ("stride", 0),
        ("stride", "__import__('os').system('true')"),
        ("image_size", [32, 1 << 20]),
        ("batch_size", 10**9),
        ("dynamic", 1),
        ("image", ["floats"]),
        ("precision", "float64"),
        ("suppression", {"iou_threshold": 2}),
        ("suppression", {"another": 1}),
        ("trained_size", "64"),
        ("trained_size", 0),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(name, value):
    with pytest.raises(UserError, match=f"its metadata has {name} .*; export it again") as found:
        metadata_of(own_texts(**{name: value}))
    assert len(str(found.value)) < 500


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, '{"a": 1, "a": 2}', "1" * 5000, "os.system('true')"]
)
def test_broken_json_is_refused(text):
    with pytest.raises(UserError, match="its metadata has stride"):
        metadata_of({**own_texts(), "stride": text})


def test_files_without_a_training_size_are_read():
    assert metadata_of(own_texts()).trained_size == SIDE
    assert metadata_of(own_texts(trained_size=None)).trained_size is None


@pytest.mark.parametrize("name", [*own_texts()][:-2])
def test_an_absent_field_is_named(name):
    with pytest.raises(UserError, match=f"lacks {name}; export it with export.py"):
        metadata_of(own_texts(**{name: None}))
