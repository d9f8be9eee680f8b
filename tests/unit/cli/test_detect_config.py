"""detect.py's flags of output: public names and defaults, and what is refused."""

import shlex

import pytest

from duet.utils.detect.config import parse_detect_flags
from duet.utils.errors import UserError

SWITCHES = (
    "save_txt", "save_conf", "save_csv", "save_json", "save_crop", "nosave", "hide_labels",
    "hide_conf",
)  # fmt: skip


def parse(flags: str = ""):
    return parse_detect_flags(shlex.split(f"--weights W {flags}"))


def test_the_public_output_flags_parse():
    config = parse(" ".join(f"--{name.replace('_', '-')}" for name in SWITCHES))
    assert all(getattr(config, name) is True for name in SWITCHES)
    assert not any(getattr(parse(), name) for name in SWITCHES)
    assert (parse("--line-thickness 3").line_thickness, parse().line_thickness) == (3, None)


@pytest.mark.parametrize("value", [0, -1, 1001])
def test_a_line_without_width_or_wider_than_images_is_refused(value):
    with pytest.raises(UserError, match=f"--line-thickness {value}; .* from 1 to 1000"):
        parse(f"--line-thickness {value}")


def test_scores_of_labels_that_are_not_written_are_refused():
    with pytest.raises(UserError, match="--save-txt"):
        parse("--save-conf")
