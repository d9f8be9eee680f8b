"""Wings that are there are imported; deleted ones are left out, or named where they are needed."""

import pytest

from duet.utils.errors import UserError
from duet.utils.optional import load_wings, require_wing

BOXES = "duet.utils.geometry.boxes"
TILING = "duet.utils.geometry.tiling"
ABSENT = "duet.utils.absent.deeper"  # neither it nor its folder


def test_available_wings_are_imported_in_order():
    names = (BOXES, ABSENT, "duet.utils.absent", TILING)
    assert [wing.__name__ for wing in load_wings(names)] == [BOXES, TILING]


def test_first_available_wing_is_required():
    assert require_wing((ABSENT, BOXES), "--flag").__name__ == BOXES


def test_missing_required_wing_is_named():
    with pytest.raises(UserError, match="--evolve needs utils/absent, which is missing"):
        require_wing((ABSENT,), "--evolve")
