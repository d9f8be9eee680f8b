"""The flags of `python -m duet audit`: what parses, and what is refused how."""

import shlex

import pytest

from duet.models.evaluation.audit.audit_config import parse_audit_flags
from duet.utils.errors import UserError


def test_the_flags_parse_and_have_defaults():
    config = parse_audit_flags(shlex.split("--data D --weights W V --task train --conf 0.3"))
    assert (config.data, config.weights, config.task) == ("D", ("W", "V"), "train")
    assert config.lowest_score == 0.3
    default = parse_audit_flags(["--data", "D", "--weights", "W"])
    assert (default.task, str(default.project), default.image_size) == ("val", "runs/audit", 640)
    assert default.lowest_score is None


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--weights W", "--data is required"),
        ("--data D", "--weights is required"),
        ("--data D --weights W --conf 1.5", "--conf 1.5; accepted: a number from 0 to 1"),
        ("--data D --weights W --top 0", "--top 0"),
        ("--data D --weights W --split 1", "--split 1"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_accepted(line, text):
    with pytest.raises(UserError, match=text):
        parse_audit_flags(shlex.split(line))
