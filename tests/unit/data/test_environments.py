"""The batches of one seed, made in the environments of both backends."""

from tests.environments import BACKENDS, python_of, run_python
from tests.shared_files import shared_path


def test_batches_are_byte_identical_in_both_environments():
    for backend in BACKENDS:
        python_of(backend)
    data = shared_path("data/coco256/coco256.yaml")
    printed = [
        run_python(backend, "-m", "tests.unit.data.batch_digest", data, 3).splitlines()
        for backend in BACKENDS
    ]
    assert len(set(printed[0])) == 32
    assert printed[0] == printed[1]
