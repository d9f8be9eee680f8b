"""The batches of one seed, made in the environments of both backends."""

from duet.utils.files.yaml_files import write_yaml
from tests.environments import BACKENDS, python_of, run_python, shared_path


def test_batches_are_byte_identical_in_both_environments(tmp_path):
    for backend in BACKENDS:
        python_of(backend)
    data = tmp_path / "coco256.yaml"  # with polygons
    folder = shared_path("data/coco256")
    (tmp_path / "images").symlink_to(folder / "images")
    (tmp_path / "labels").symlink_to(folder / "labels-seg")
    names = [str(number) for number in range(80)]
    write_yaml(data, {"train": "images/train2017", "val": "images/val2017", "names": names})
    printed = [
        run_python(backend, "-m", "tests.unit.data.compared", data, 3).splitlines()
        for backend in BACKENDS
    ]
    assert len(set(printed[0])) == 36
    assert printed[0] == printed[1]
