"""What a file may lose, and what is said of it. Expected values by hand."""

from __future__ import annotations

import pytest

from models.export.scoring import Score, fault_of_matches, fault_of_score, warning_of_score
from utils.runtimes.metadata import MASK_ROWS, MASKS


def of(fitness: float) -> Score:
    return Score("w.onnx", {}, fitness, 1.0)


@pytest.mark.parametrize(
    ("precision", "model", "accepted", "refused"),
    [
        ("float32", 0.4, 0.3992, 0.3988),
        ("float16", 0.4, 0.396, 0.394),
        ("int8", 0.4, 0.351, 0.349),  # 0.05 at most
        ("int8", 0.1, 0.081, 0.079),  # a fifth
        ("int8", 0.03, 0.025, 0.0),
    ],
)
def test_what_may_be_lost_is_small_beside_the_fitness(
    precision: str, model: float, accepted: float, refused: float
) -> None:
    assert fault_of_score(of(accepted), of(model), precision) == ""
    fault = fault_of_score(of(refused), of(model), precision)
    assert f"fitness {refused:.4f}, the model's {model:.4f}; at most" in fault


def test_a_file_that_cuts_masks_coarsely_may_lose_more() -> None:
    for precision, accepted, refused in (("float32", 0.38, 0.378), ("float16", 0.376, 0.374)):
        assert fault_of_score(of(accepted), of(0.4), precision, MASKS) == ""
        assert fault_of_score(of(accepted), of(0.4), precision, MASK_ROWS) != ""
        assert fault_of_score(of(refused), of(0.4), precision, MASKS) != ""


def test_a_fitness_too_low_to_judge_8_bits_by_is_said() -> None:
    assert fault_of_score(of(0.0), of(0.01), "int8") == ""
    text = "w.onnx: the model's own fitness on --data is 0.0100, too low to tell what 8 bits cost"
    assert warning_of_score(of(0.01), of(0.01), "int8").startswith(text)
    assert warning_of_score(of(0.01), of(0.01), "float32") == ""


def test_a_loss_of_more_than_a_hundredth_is_said() -> None:
    assert warning_of_score(of(0.389), of(0.4), "int8") == (
        "w.onnx: fitness on --data is 0.0110 lower than the model's"
    )
    assert warning_of_score(of(0.391), of(0.4), "int8") == ""


def test_a_file_in_8_bits_finds_half_of_what_the_model_finds() -> None:
    assert fault_of_matches(10, 20, "int8") == fault_of_matches(0, 9, "int8") == ""
    assert fault_of_matches(9, 20, "int8") == (
        "it finds 9 of the model's 20 detections; at least 50% is needed"
    )
    assert fault_of_matches(0, 0, "int8") == fault_of_matches(0, 20, "float32") == ""
