"""What the ranks of a job tell each other."""

import os

import pytest

from tests.rank_threads import run_rank_threads

# The folder of a run may have any name that a file may have.
NAMES = ["", "runs/exp", "runs/größe", os.fsdecode(b"caf\xe9\n")]


@pytest.mark.parametrize("name", NAMES)
def test_every_rank_has_the_text_of_the_first(name):
    def ask(world):
        own = name if world.process.is_main else ""
        return world.broadcast_text(own), world.all_have(name), world.all_have(own)

    assert run_rank_threads(3, ask) == [(name, True, name == "")] * 3
