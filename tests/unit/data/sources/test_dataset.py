"""Dataset YAMLs: where images are looked for, and what a mistake is answered with."""

import os
import time
from pathlib import Path

import pytest
import yaml

from duet.utils.data.sources.dataset import YAML_FOLDER, load_dataset
from duet.utils.data.sources.dataset_yaml import dataset_yaml_text
from duet.utils.data.sources.image_sources import list_images
from duet.utils.data.sources.remarks import Remarks
from duet.utils.errors import DatasetError, UserError
from tests.environments import shared_path
from tests.unit.data.formats.annotation_files import touch

NAMES = {0: "cell", 1: "platelet"}


class WithoutAliases(yaml.CSafeDumper):
    """A quarter of the time of the dumper in Python."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def write_yaml(file: Path, **keys: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    document = {"path": ".", "train": "images/train", "val": "images/val", "names": NAMES, **keys}
    kept = {key: value for key, value in document.items() if value is not None}
    file.write_text(yaml.dump(kept, Dumper=WithoutAliases), encoding="utf-8")
    return file


@pytest.fixture
def dataset(tmp_path):
    touch(tmp_path, "images/train/b.jpg", "images/train/sub/a.PNG", "images/val/c.jpeg")
    touch(tmp_path, "images/train/notes.md")
    return tmp_path


def error_of(path: Path, **arguments: object) -> str:
    with pytest.raises(UserError) as caught:
        load_dataset(path, **arguments)
    return str(caught.value)


def paths_of(entries, *arguments, **options):
    return [image.path for image in list_images(entries, *arguments, **options)]


def test_folders_are_searched_recursively_in_path_order(dataset, monkeypatch):
    spec = load_dataset(write_yaml(dataset / "cells.yaml", names=["cell", "platelet"], nc=2))
    assert (spec.name, spec.class_names, spec.test) == ("cells", ("cell", "platelet"), ())
    train = dataset / "images/train"
    # "a" is before "a b" and "a-b", though " " and "-" are before "/". Not all kinds are decoded.
    names = ["a/z.jpg", "a b/y.PNG", "a-b/x.webp", "a.jpg.d/.hidden/w.bmp", "a.ppm", "b.jpg",
             "größe 图 🐈.jpg", "sub/a.PNG"]  # fmt: skip
    touch(train, *names, ".jpg", "b/jpg", "a/z.jpg.part")
    assert paths_of(spec.train) == [train / name for name in names]
    assert paths_of(spec.val) == [dataset / "images/val/c.jpeg"]
    monkeypatch.chdir(dataset)
    found = list(map(str, paths_of([Path("images/train")])))
    assert found == [f"images/train/{name}" for name in names]


def test_path_is_relative_to_yaml_then_working_folder(dataset, tmp_path_factory, monkeypatch):
    path = write_yaml(dataset / "yamls/cells.yaml", path="..")
    assert load_dataset(path).root.resolve() == dataset
    monkeypatch.chdir(dataset.parent)
    elsewhere = write_yaml(tmp_path_factory.mktemp("x") / "cells.yaml", path=dataset.name)
    assert load_dataset(elsewhere).root.resolve() == dataset


def test_a_yaml_of_ours_finds_what_was_fetched_into_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "datasets/coco128; correct the path" in error_of(Path("coco128.yaml"))
    touch(tmp_path, "datasets/coco128/images/train2017/a.jpg")
    (root,) = {path.parents[1].resolve() for path in load_dataset("coco128.yaml").train}
    assert root == tmp_path / "datasets/coco128"


def test_unrequested_split_need_not_exist(dataset):
    path = write_yaml(dataset / "cells.yaml", train="absent", test="absent.txt")
    assert load_dataset(path, splits=("val",)).val == (dataset / "images/val",)
    assert "key 'test'" in error_of(path, splits=("test",))


@pytest.mark.parametrize("absent", [{"images": "gone"}, {"annotations": "gone"}, {"list": "gone"}])
def test_annotations_of_unrequested_splits_need_not_exist(dataset, absent):
    (dataset / "labels.csv").write_text("ImageID,LabelName,XMin,YMin,XMax,YMax\nb,cell,0,0,1,1\n")
    entry = {"images": "images/train", "annotations": "labels.csv"}
    gone = {**entry, **absent}
    keys = {"train": entry, "val": entry, "names": ["cell"], "test": [entry, gone]}
    path = write_yaml(dataset / "cells.yaml", **keys)
    assert load_dataset(path).class_names == ("cell",) and len(load_dataset(path).test) == 2
    assert "key 'test' has the value 'gone'" in error_of(path, splits=("test",))
    text = error_of(write_yaml(dataset / "cells.yaml", **{**keys, "names": None}))
    assert "key 'test' has the value 'gone'" in text
    assert text.endswith("class names are taken from all splits; with 'names' it may be absent")


def test_download_entry_matters_only_for_missing_images(dataset):
    command = "curl -O example.org/x.zip"
    assert load_dataset(write_yaml(dataset / "cells.yaml", download=command)).name == "cells"
    text = error_of(write_yaml(dataset / "cells.yaml", download=command, train="absent"))
    assert "its 'download' entry is never run" in text
    assert f"it is {command!r}" in text and "duet fetch" in text
    long = error_of(write_yaml(dataset / "cells.yaml", download="rm -rf\n" * 9000, train="absent"))
    assert len(long) < 1000 and "rm -rf\\n" in long


def test_folder_without_images_is_an_error(dataset):
    (dataset / "empty").mkdir()
    text = error_of(write_yaml(dataset / "cells.yaml", train="empty"))
    assert "key 'train'" in text
    assert f"{dataset / 'empty'} holds no image" in text
    assert "or record files (.ffr)" in text
    with pytest.raises(DatasetError, match="holds no image"):
        list_images([dataset / "empty"])


def test_entries_list_images_without_hidden_files_or_loops(dataset):
    touch(dataset, "images/train/.hidden/x.jpg")
    (dataset / "images/train/loop").symlink_to(dataset / "images")
    keys = {"train": ["images/val/c.jpeg", "images/train/b.jpg"], "val": "images/train"}
    spec = load_dataset(write_yaml(dataset / "cells.yaml", **keys))
    assert [path.name for path in paths_of(spec.train)] == ["c.jpeg", "b.jpg"]
    names = {path.name for path in paths_of(spec.val)}
    assert "b.jpg" in names and "c.jpeg" not in names


def test_linked_folders_are_read_once_and_loops_end(dataset):
    train, store = dataset / "images/train", dataset / "store"
    touch(store, "site/x.jpg", "site/y.jpg", "site/._x.jpg", "site/__MACOSX/z.jpg")
    for link in ("a", "b"):
        (train / link).symlink_to(store)
    (store / "site/around").symlink_to(store)
    (train / "gone").symlink_to(dataset / "nowhere")
    (train / "itself").symlink_to(train / "itself")
    remarks = Remarks("train")
    found = paths_of([train], remarks=remarks)
    names = [path.relative_to(train).as_posix() for path in found]
    assert names == ["a/site/x.jpg", "a/site/y.jpg", "b.jpg", "sub/a.PNG"]
    assert remarks.numbers == {"dead_link": 2, "of_macos": 2}


def test_roboflow_paths_beside_the_yaml_are_found(dataset):
    touch(dataset, "train/images/x.jpg", "valid/images/y.jpg")
    keys = {"train": "../train/images", "val": "../valid/images", "test": "../test/images"}
    path = write_yaml(dataset / "data.yaml", path=None, names=["a"], nc=1, **keys)
    spec = load_dataset(path)
    assert paths_of([*spec.train, *spec.val]) == [
        dataset / "train/images/x.jpg",
        dataset / "valid/images/y.jpg",
    ]
    (dataset / "inner").mkdir()
    moved = path.rename(dataset / "inner/data.yaml")
    assert load_dataset(moved).train[0].resolve() == dataset / "train/images"


@pytest.mark.parametrize("key", ["valid", "validation"])
def test_validation_split_has_alternative_names(dataset, key):
    spec = load_dataset(write_yaml(dataset / "cells.yaml", val=None, **{key: "images/val"}))
    assert [path.name for path in paths_of(spec.val)] == ["c.jpeg"]
    assert f"key '{key}'" in error_of(
        write_yaml(dataset / "cells.yaml", val=None, **{key: "absent"})
    )


@pytest.mark.parametrize(
    "folder", ["images\\train", ".\\images\\train\\", "..\\images\\train", "images/train/sub/.."]
)
def test_backslashes_in_yaml_paths_are_accepted(dataset, folder):
    spec = load_dataset(write_yaml(dataset / "cells.yaml", path=".\\", train=folder))
    assert [path.name for path in paths_of(spec.train)] == ["b.jpg", "a.PNG"]


def write_list(dataset, lines, encoding="utf-8", place="splits/a/train.txt"):
    path = dataset / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("\r\n".join(lines).encode(encoding))
    return path


BOTH = ["images/train/b.jpg", "images/val/c.jpeg"]
# Place and encoding of a list, its lines, and the images from the dataset's folder on.
LISTS = [
    ("lists/val.txt", "utf-8", ["./one.jpg", "", "../images/val/c.jpeg", "/absolute/two.png"],
     ["lists/one.jpg", "images/val/c.jpeg", "/absolute/two.png"]),
    # Where Darknet's and CVAT's lists start.
    *(("val.txt", "utf-8", [f"{start}images/val/c.jpeg", BOTH[0]], BOTH[::-1])
      for start in ("", "data/", "images/../")),
    ("lists/val.txt", "utf-8", ["images/val/c.jpeg", "images/gone.jpg"],
     ["images/val/c.jpeg", "images/gone.jpg"]),
    # Where most of its images are: the first one may have been deleted.
    *((place, "utf-8", ["images/gone.jpg", *BOTH], ["images/gone.jpg", *BOTH])
      for place in ("splits/train.txt", "splits/a/train.txt")),
    *(("splits/a/train.txt", "utf-8", [start + name.replace("/", "\\") for name in BOTH], BOTH)
      for start in ("", ".\\", "D:\\work\\my cells\\", "C:/x/")),
    *(("splits/a/train.txt", encoding, ["images/train/细胞.jpg", BOTH[0]],
       ["images/train/细胞.jpg", BOTH[0]]) for encoding in ("utf-8", "utf-8-sig", "utf-16", "gbk")),
]  # fmt: skip


@pytest.mark.parametrize(("place", "encoding", "lines", "expected"), LISTS)
def test_images_of_a_list_are_found(dataset, place, encoding, lines, expected):
    touch(dataset, "images/train/细胞.jpg")
    found = paths_of([write_list(dataset, lines, encoding, place)], dataset)
    assert list(map(os.path.normpath, found)) == [str(dataset / name) for name in expected]


def test_absent_list_images_name_tried_folders_or_encoding(dataset):
    path = write_list(dataset, ["images/x.jpg", "D:\\y.jpg"])
    with pytest.raises(DatasetError) as caught:
        list_images([path], dataset)
    text = str(caught.value)
    assert "none of its images was found, such as 'images/x.jpg'; folders tried: " in text
    assert all(str(place) in text for place in (path.parent, path.parent.parent, dataset))
    path = write_list(dataset, ["images/x.jpg", "images/gone 细胞.jpg"], "gbk")
    with pytest.raises(DatasetError, match="line 2: the byte 0x.. is not UTF-8; save the file as"):
        list_images([path], dataset)


# Keys of a YAML, and what the error says.
MISTAKES = [
    ({"names": ["a", "a"]}, "['a'] more than once"),
    ({"names": {0: "a", 2: "b"}}, "class numbers [0, 2]; 0 to 1 are needed"),
    ({"names": {0: "a", 1.0: "b"}}, "line 3, names: the key 1.0 is not text"),
    ({"names": ["a", False]}, "holds False, which is not text"),
    ({"names": "cell"}, "has the value 'cell'"),
    ({"names": None}, "key 'names' is missing: list the names of the classes"),
    ({"names": None, "Names": ["a"]}, "did you mean names where it has 'Names'?"),
    ({"nc": "2"}, "has the value '2'; accepted: a whole number, without quotes"),
    ({"nc": 3}, "has the value 3, but 'names' has 2 entries"),
    ({"train": 5}, "has the value 5; accepted: a path"),
    ({"train": None}, "key 'train' is missing: name the folder or the list of its images"),
    ({"train": None, "trian": "x"}, "'train' is missing: did you mean train where it has 'trian'"),
    ({"train": "cams/*/train"}, "key 'train' has the value 'cams/*/train', but there is no"),
    ({"train": "cams/*/train"}, "patterns are not expanded: list the folders"),
    ({"train": "D:\\cells\\train"}, "it is a path of Windows: write where the folder is here"),
    ({"val": "images/vall"}, "key 'val' has the value 'images/vall', but there is no /"),
    ({"val": "images/vall"}, "/images/vall; correct the path"),
    ({"val": "x" * 9000}, f"{'x' * 20}; correct the path"),
    ({"val": None}, "or draw it: --split 0.8"),
    ({"val": None, "valid": "absent"}, "key 'valid'"),
    ({"kpt_shape": [17, 3]}, "'kpt_shape' has the value [17, 3]: the labels hold keypoints"),
    ({"kpt_shape": [17, 3]}, "keep the first five columns"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "part"), MISTAKES)
def test_yaml_mistake_is_reported_with_file_and_next_step(dataset, keys, part):
    path = write_yaml(dataset / "cells.yaml", **keys)
    text = error_of(path)
    assert part in text and str(path) in text and "download" not in text and len(text) < 2000
    assert ("--split" in text) == (keys == {"val": None})


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ('train: "D:\\data\\new"', "write / for \\, or use single quotes"),
        ("train:\n\t- images", "line 2: invalid YAML"),
        ("train:\n\t- images", "; indent with spaces, not tabs"),
        ("names: [@a, b]", "not tabs, and quote a text that starts with @, ` or %"),
        ("all: &a {val: x}\n<<: *a", "line 2: merge keys (<<) are not supported; write out"),
        ("names: [<<, b]", "or quote << if it is text"),
    ],
)
def test_invalid_yaml_error_shows_how_to_write_it(tmp_path, line, advice):
    (tmp_path / "bad.yaml").write_text(f"{line}\n")
    assert advice in error_of(tmp_path / "bad.yaml")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[2_1, 010, 1.10, 12:30, 0x1F, 1e3]", ("2_1", "010", "1.10", "12:30", "0x1F", "1e3")),
        ("[1_11, 11_1, x]", ("1_11", "11_1", "x")),
        ("{0: 2024-01-01, 1: .inf}", ("2024-01-01", ".inf")),
        ("[!!int 007, '008', 99999999999999999999]", ("007", "008", "99999999999999999999")),
    ],
)
def test_number_like_class_name_is_kept_as_written(dataset, text, names):
    path = write_yaml(dataset / "cells.yaml", names=None)
    path.write_text(f"{path.read_text()}nc: {len(names)}\nnames: {text}\n")
    spec = load_dataset(path)
    assert spec.class_names == names
    path.write_text(dataset_yaml_text({"train": "images/train", "val": "images/val"}, names))
    assert load_dataset(path).class_names == names


def test_class_name_aliasing_a_number_is_refused(dataset):
    path = write_yaml(dataset / "cells.yaml", names=None)
    path.write_text(f"sign: &sign 2_1\n{path.read_text()}names: [*sign]\n")
    assert "holds 21, which is not text; put it in quotes" in error_of(path)


@pytest.mark.parametrize(
    "keys",
    [
        {"names": [*(f"name {i}" for i in range(20_000)), "name 1"]},
        {"names": ["x" * 100_000] * 2},
        {"train": [["b"] * 20_000]},
    ],
    ids=range(3),
)
def test_error_stays_short_and_quick_for_huge_values(dataset, keys):
    path = write_yaml(dataset / "cells.yaml", **keys)
    start = time.process_time()
    text = error_of(path)
    assert time.process_time() - start < 10  # about 1 on an idle machine, most of it for PyYAML
    assert len(text) < 1000


def test_list_file_may_name_non_utf_8_files(dataset):
    name = b"images/val/caf\xe9\xc2\x85.jpg"
    Path(os.fsdecode(os.fsencode(dataset) + b"/" + name)).touch()
    (dataset / "some.txt").write_bytes(b"\xef\xbb\xbf./" + name + b"\r\nimages/val/c.jpeg\n\n")
    found = paths_of(load_dataset(write_yaml(dataset / "cells.yaml", val="some.txt")).val)
    assert [path.is_file() for path in found] == [True, True]


def test_unknown_data_argument_lists_the_known_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = error_of(Path("cococo.yaml"))
    assert str(tmp_path / "cococo.yaml") in text
    assert "shapes" in text
    assert "coco.yaml" in text.split("known name")[1]
    write_yaml(tmp_path / "cells.yaml")
    for name in ("cells.yml", "cells"):
        assert "; cells.yaml is there; give" in error_of(Path(name))


def test_coco_has_the_public_classes():
    stored = yaml.safe_load(shared_path("data/coco256/coco256.yaml").read_text(encoding="utf-8"))
    ours = yaml.safe_load((YAML_FOLDER / "coco.yaml").read_text(encoding="utf-8"))
    assert ours["names"] == stored["names"]
