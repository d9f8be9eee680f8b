"""Pascal VOC: what labelImg, Roboflow, CVAT and the original development kit write."""

import re
from pathlib import Path

import numpy as np
import pytest

from tests.shared_files import shared_path
from utils.data.sources.dataset import load_dataset
from utils.data.sources.formats.annotations import UNKNOWN, Annotations
from utils.data.sources.formats.format import AnnotatedFolder
from utils.data.sources.formats.voc import VOC
from utils.data.sources.splits import load_split
from utils.errors import DatasetError

LABELIMG = """<annotation>
	<folder>photos</folder>
	<filename>{name}</filename>
	<path>C:\\Users\\me\\photos\\{name}</path>
	<source><database>{database}</database></source>
	<size><width>100</width><height>80</height><depth>3</depth></size>
	<segmented>0</segmented>
{objects}</annotation>"""  # fmt: skip
DOG = "<bndbox><xmin>10</xmin><ymin>20</ymin><xmax>30</xmax><ymax>60</ymax></bndbox>"


def thing(content: str, name: str = "dog") -> str:
    return f"<object><name>{name}</name>{content}</object>\n"


def write(
    path: Path, objects: str = "", name: str = "no such.png", database: str = "Unknown"
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(LABELIMG.format(name=name, objects=objects, database=database), "utf-8")
    return path


def images(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def kit(root: Path, *stems: str, lists: tuple[str, ...] = ("train", "val")) -> Path:
    """Write a folder of a development kit, each list with all stems."""
    for stem in stems:
        images(root / "JPEGImages", f"{stem}.jpg")
        write(root / "Annotations" / f"{stem}.xml", thing(DOG))
    for name in lists:
        path = root / "ImageSets/Main" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(stems))
    return root


def read(folder: Path, image_list: Path | None = None) -> Annotations:
    """Read XML files that lie beside their images."""
    return VOC.read(AnnotatedFolder(VOC.name, folder, folder, image_list))


def read_one(tmp_path: Path, objects: str, database: str = "Unknown") -> Annotations:
    images(tmp_path, "a.jpg")
    write(tmp_path / "a.xml", objects, database=database)
    return read(tmp_path)


def names(annotations: Annotations) -> list[str]:
    return [Path(path).name for path in annotations.paths]


def test_a_real_dataset_is_the_one_that_was_converted_from_it():
    """bccd's label files were written from these XML files, with six decimals."""
    voc = load_dataset(shared_path("data/bccd/voc"))
    yolo = load_dataset(shared_path("data/bccd/bccd.yaml"))
    assert voc.class_names == ("Platelets", "RBC", "WBC")
    number_of = [yolo.class_names.index(name) for name in voc.class_names]
    num_images = {}
    for split in ("train", "val"):
        pairs = list(zip(load_split(voc, split), load_split(yolo, split), strict=True))
        num_images[split] = len(pairs)
        for mine, other in pairs:
            assert mine.image_path.name == other.image_path.name
            classes = np.array(number_of)[mine.class_index]
            rows = [
                sorted(zip(each_class, boxes.tolist(), strict=True))
                for each_class, boxes in (
                    (classes, mine.boxes_cxcywh_norm),
                    (other.class_index, other.boxes_cxcywh_norm),
                )
            ]
            assert [row[0] for row in rows[0]] == [row[0] for row in rows[1]]
            found, expected = (np.array([row[1] for row in each]).reshape(-1, 4) for each in rows)
            # Half of the sixth decimal, and float32.
            np.testing.assert_allclose(found, expected, rtol=0, atol=0.5e-6 + 1e-7)
    assert num_images == {"train": 292, "val": 72}


def test_all_classes_may_be_taken_for_one():
    dataset = load_dataset(shared_path("data/bccd/voc"), single_class=True)
    samples = load_split(dataset, "val")
    assert dataset.class_names == ("item",)
    assert {number for sample in samples for number in sample.class_index.tolist()} == {0}


def test_objects_have_the_names_boxes_and_size_of_the_file(tmp_path):
    cat = "<bndbox><ymax>50.5</ymax><xmax>70</xmax><ymin> 0 </ymin><xmin>1.25</xmin></bndbox>"
    found = read_one(tmp_path, thing(DOG) + thing(cat, "\n cat\n") + thing(DOG))
    assert found.class_names == ("cat", "dog") and found.class_index.tolist() == [1, 0, 1]
    assert found.boxes_xyxy.tolist() == [[10, 20, 30, 60], [1.25, 0, 70, 50.5], [10, 20, 30, 60]]
    assert found.sizes.tolist() == [[80, 100]] and found.starts.tolist() == [0, 3]
    assert len(found.polygons.points_xy) == 0 and not found.broken and not found.left_out


def test_corners_may_have_changed_places(tmp_path):
    box = "<bndbox><xmin>30</xmin><ymin>60</ymin><xmax>10</xmax><ymax>20</ymax></bndbox>"
    assert read_one(tmp_path, thing(box)).boxes_xyxy.tolist() == [[10, 20, 30, 60]]


def test_difficult_objects_are_left_out_and_counted(tmp_path):
    hard = [thing(f"<difficult>{value}</difficult>{DOG}", "cat") for value in ("1", "true")]
    easy = [thing(f"<difficult>{value}</difficult>{DOG}") for value in ("0", "", "Unspecified")]
    found = read_one(tmp_path, "".join(hard + easy))
    assert found.class_names == ("dog",) and len(found.class_index) == 3
    assert found.left_out == {"difficult objects": 2}


def test_parts_of_an_object_are_no_objects(tmp_path):
    hand = "<part><name>hand</name><bndbox><xmin>1</xmin></bndbox></part>"
    found = read_one(tmp_path, f"<object>{hand}<name>dog</name>{DOG}{hand}</object>")
    assert found.class_names == ("dog",) and found.boxes_xyxy.tolist() == [[10, 20, 30, 60]]


def test_the_original_data_count_pixels_from_one(tmp_path):
    """Of an image of 100 px, 1 to 100 are all pixels: from edge 0 to edge 100."""
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>100</xmax><ymax>2</ymax></bndbox>"
    found = read_one(tmp_path, thing(box), database="The VOC2007 Database")
    assert found.boxes_xyxy.tolist() == [[0, 1, 100, 2]]


def test_a_copy_of_the_name_of_the_original_data_that_counts_from_zero_is_left_alone(tmp_path):
    zero = DOG.replace("10", "0")
    found = read_one(tmp_path, thing(zero) + thing(DOG), database="The VOC2007 Database")
    assert found.boxes_xyxy.tolist() == [[0, 20, 30, 60], [10, 20, 30, 60]]


def test_the_polygon_of_roboflow_is_the_outline(tmp_path):
    points = "<x1>10</x1><y1>20</y1><x2>30</x2><y2>25.5</y2><x3>15</x3><y3>60</y3>"
    two = "<x1>1</x1><y1>2</y1><x2>3</x2><y2>4</y2>"
    found = read_one(
        tmp_path,
        "".join(thing(f"<polygon>{each}</polygon>{DOG}") for each in (points, two, "<pt/>")),
    )
    assert found.polygons.points_xy.tolist() == [[10, 20], [30, 25.5], [15, 60]]
    assert found.polygons.num_points.tolist() == [3, 0, 0]
    assert found.boxes_xyxy.tolist() == [[10, 20, 30, 60]] * 3


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("<size><width>64</width><height>32</height></size>", (32, 64)),
        ("<size><width>0</width><height>0</height><depth>0</depth></size>", UNKNOWN),
        ("<size><width>64</width></size>", UNKNOWN),
        ("<size/>", UNKNOWN),
        ("", UNKNOWN),
        ("<size><width>1</width><height>1</height></size>", UNKNOWN),
        ("<size><width>-5</width><height>32</height></size>", UNKNOWN),
    ],
)
def test_a_size_that_is_not_told_is_unknown(tmp_path, size, expected):
    images(tmp_path, "a.jpg")
    (tmp_path / "a.xml").write_text(f"<annotation>{size}{thing(DOG)}</annotation>")
    assert read(tmp_path).sizes.tolist() == [list(expected)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (thing(DOG) + thing(DOG.replace("10", "ten")), "object 2: xmin is 'ten'; a number"),
        (thing(DOG.replace("10", "nan")), "xmin is 'nan'"),
        (thing(DOG.replace("10", "1e999")), "xmin is '1e999'"),
        (thing(DOG.replace("10", "9" * 10_000)), "xmin is '999"),
        (thing(DOG.replace("<xmin>10</xmin>", "")), "xmin is ''"),
        (thing(""), "object 1: it has no bndbox"),
        (thing(DOG, " "), "object 1: it has no name"),
        (f"<object>{DOG}</object>", "object 1: it has no name"),
        ("<object>", "line .*: no valid XML: mismatched tag"),
        (thing(f"<polygon><x1>a</x1></polygon>{DOG}"), "object 1: x1 is 'a'"),
        ("<size><width>x</width></size>", None),
    ],
)
def test_a_broken_file_is_a_problem_of_its_image_alone(tmp_path, content, reason):
    images(tmp_path, "a.jpg", "b.jpg")
    write(tmp_path / "b.xml", thing(DOG))
    write(tmp_path / "a.xml", content)
    found = read(tmp_path)
    assert names(found) == ["a.jpg", "b.jpg"] and 1 not in found.broken
    if reason is None:
        assert not found.broken  # the first size counts
    else:
        assert set(found.broken) == {0} and found.broken[0].startswith("a.xml: ")
        assert re.search(reason, found.broken[0]) and len(found.broken[0]) < 200


def test_images_without_a_file_and_files_without_an_object_are_backgrounds(tmp_path):
    images(tmp_path, "c.PNG", "a.jpg", "b.jpeg", "notes.txt", "._a.jpg", ".cache/d.jpg")
    write(tmp_path / "a.xml", thing(DOG))
    write(tmp_path / "b.xml")
    found = read(tmp_path)
    assert names(found) == ["a.jpg", "b.jpeg", "c.PNG"] and not found.broken
    assert found.starts.tolist() == [0, 1, 1, 1]


def test_an_image_is_found_by_its_name_or_else_by_what_the_file_says(tmp_path):
    images(
        tmp_path,
        "a.jpg",
        "a.png",
        "b.bmp",
        "other name.jpg",
        "inner/d.jpg",
        "v1.2.jpg",
        "猫 🐈.jpg",
    )
    write(tmp_path / "a.xml", name="a.png")  # of two with its name
    write(tmp_path / "b.xml", name="a.jpg")  # copied; a.jpg is not its image
    write(tmp_path / "c.xml", name="other name.jpg")
    write(tmp_path / "inner/d.xml", name="d")
    write(tmp_path / "v1.2.xml")
    write(tmp_path / "猫 🐈.xml")
    write(tmp_path / "gone.xml", name="gone.jpg")
    write(tmp_path / "z.xml", name="..\\..\\a.png")  # the image of a.xml
    found = read(tmp_path)
    sizes = zip(names(found), found.sizes.tolist(), strict=True)
    labelled = sorted(name for name, size in sizes if size != list(UNKNOWN))
    # The scan tells that gone.jpg and z.png are not there.
    expected = ["a.png", "b.bmp", "d.jpg", "gone.jpg", "other name.jpg", "v1.2.jpg", "z.png"]
    assert labelled == [*expected, "猫 🐈.jpg"]
    assert sorted({*names(found)} - {*labelled}) == ["a.jpg"] and len(found) == len(labelled) + 1


def test_an_image_that_two_inner_folders_have_is_not_guessed(tmp_path):
    images(tmp_path / "images", "one/a.jpg", "two/a.jpg", "one/b.jpg")
    for name in "ab":
        write(tmp_path / "annotations" / f"{name}.xml", thing(DOG))
    (found,) = VOC.find(tmp_path)[""]
    paths = [Path(path).relative_to(tmp_path / "images") for path in VOC.read(found).paths]
    # The scan tells that the first is not there.
    assert [*map(str, paths)] == ["a.png", "one/a.jpg", "one/b.jpg", "two/a.jpg"]


def labelled(folder: Path, image_list: Path | None = None) -> dict[str, int]:
    """Return the number of objects of each image of a folder with images and annotations."""
    (parts,) = VOC.find(folder).values()
    found = VOC.read(parts[0]._replace(image_list=image_list))
    paths = [str(Path(path).relative_to(folder / "images")) for path in found.paths]
    return dict(zip(paths, np.diff(found.starts).tolist(), strict=True))


@pytest.mark.parametrize("told", ["none.png", "0001.jpg"])
def test_a_file_is_never_that_of_an_image_in_another_folder(tmp_path, told):
    images(tmp_path / "images", "cam2/0001.jpg", "cam2/0002.jpg")
    for name in ("cam1/0001", "cam2/0002"):
        write(tmp_path / "annotations" / f"{name}.xml", thing(DOG), name=told)
    found = labelled(tmp_path)
    assert found.pop("cam2/0001.jpg") == 0 and found.pop("cam2/0002.jpg") == 1
    assert not (tmp_path / "images" / found.popitem()[0]).exists() and not found
    for line in ("cam2/0001.jpg", "cam2\\0001", "/data/cam2/0001.jpg"):
        (tmp_path / "list.txt").write_text(f"{line}\n")
        assert labelled(tmp_path, tmp_path / "list.txt") == {"cam2/0001.jpg": 0}


def test_a_folder_that_only_images_or_only_files_have_does_not_matter(tmp_path):
    images(tmp_path / "images", "a.jpg", "inner/b.jpg", "cam1/c.jpg")
    for name in ("inner/a", "b", "export/cam1/c"):
        write(tmp_path / "annotations" / f"{name}.xml", thing(DOG))
    found = labelled(tmp_path)
    assert found.pop("inner/b.jpg") == found.pop("cam1/c.jpg") == 1
    # images/inner is there, and a.jpg does not lie in it.
    assert found.pop("a.jpg") == 0 and len(found) == 1
    (tmp_path / "annotations/inner").rename(tmp_path / "annotations/part")
    assert labelled(tmp_path) == {"a.jpg": 1, "inner/b.jpg": 1, "cam1/c.jpg": 1}


def test_a_file_that_two_listed_images_may_have_is_that_of_neither(tmp_path):
    images(tmp_path / "images", "one/a.jpg", "two/a.jpg", "two/b.jpg")
    for name in "ab":
        write(tmp_path / "annotations" / f"{name}.xml", thing(DOG))
    (tmp_path / "list.txt").write_text("one/a.jpg\ntwo/a.jpg\ntwo/b.jpg\n")
    found = labelled(tmp_path, tmp_path / "list.txt")
    assert found == {"one/a.jpg": 0, "two/a.jpg": 0, "two/b.jpg": 1}


def test_the_lists_of_a_kit_are_its_splits(tmp_path):
    root = kit(tmp_path / "VOC2007", "a", "b", lists=("train", "val", "trainval", "test"))
    (root / "ImageSets/Main/dog_train.txt").write_text("a  1\nb -1\n")
    (root / "ImageSets/Main/train.txt").write_text("b -1\r\na  1\r\n\r\n")
    (root / "ImageSets/Main/val.txt").write_text("b\n")
    found = VOC.find(root)
    assert set(found) == {"train", "val", "test"}
    assert [names(VOC.read(*found[split])) for split in ("train", "val")] == [
        ["b.jpg", "a.jpg"],
        ["b.jpg"],
    ]


def test_of_two_lists_for_a_split_the_one_with_its_name_is_taken_else_none(tmp_path):
    root = kit(tmp_path, "a", lists=("train", "train2", "training", "val2007"))
    found = VOC.find(root)
    assert {split: [part.image_list.name for part in parts] for split, parts in found.items()} == {
        "train": ["train.txt"], "val": ["val2007.txt"],
    }  # fmt: skip
    (root / "ImageSets/Main/train.txt").unlink()
    with pytest.raises(DatasetError, match=r"train2\.txt and .*training\.txt are both .*'train'"):
        VOC.find(root)


def test_all_years_of_a_kit_count(tmp_path):
    kit(tmp_path / "VOCdevkit/VOC2007", "000001")
    kit(tmp_path / "VOCdevkit/VOC2012", "2008_000001", "2008_000002")
    for root in (tmp_path, tmp_path / "VOCdevkit"):
        dataset = load_dataset(root)
        assert dataset.class_names == ("dog",)
        read_names = [name for folder in dataset.train for name in names(VOC.read(folder))]
        assert read_names == ["000001.jpg", "2008_000001.jpg", "2008_000002.jpg"]


def test_trainval_is_for_training_where_nothing_else_is(tmp_path):
    found = VOC.find(kit(tmp_path, "a", lists=("trainval", "test")))
    assert set(found) == {"train", "test"} and found["train"][0].image_list.stem == "trainval"
    with pytest.raises(DatasetError, match="--split 0.8"):
        load_dataset(tmp_path)
    assert load_dataset(tmp_path, train_part=0.8).train_part == 0.8


def test_trainval_and_empty_lists_do_not_count_beside_others(tmp_path):
    root = kit(tmp_path, "a", "b", lists=("trainval", "val"))
    (root / "ImageSets/Main/test.txt").touch()
    assert set(VOC.find(root)) == {"val"}


def test_a_year_without_lists_is_for_training_beside_one_with_lists(tmp_path):
    kit(tmp_path / "VOC2007", "a")
    kit(tmp_path / "VOC2012", "b", lists=())
    found = VOC.find(tmp_path)
    assert [names(VOC.read(folder)) for folder in found["train"]] == [["a.jpg"], ["b.jpg"]]
    assert set(found) == {"train", "val"}


@pytest.mark.parametrize("folders", [("JPEGImages", "Annotations"), ("images", "annotations")])
def test_a_folder_without_lists_is_not_divided(tmp_path, folders):
    images(tmp_path / folders[0], "a.jpg", "b.jpg")
    write(tmp_path / folders[1] / "a.xml", thing(DOG))
    (found,) = VOC.find(tmp_path)[""]
    assert names(VOC.read(found)) == ["a.jpg", "b.jpg"]
    assert load_dataset(tmp_path, train_part=0.5).class_names == ("dog",)


def test_roboflow_has_a_folder_for_each_split(tmp_path):
    for folder in ("train", "valid", "test"):
        images(tmp_path / folder, f"{folder}.jpg")
        write(tmp_path / folder / f"{folder}.xml", thing(DOG))
    found = VOC.find(tmp_path)
    assert {split: names(VOC.read(*parts)) for split, parts in found.items()} == {
        "train": ["train.jpg"], "val": ["valid.jpg"], "test": ["test.jpg"],
    }  # fmt: skip


@pytest.mark.parametrize("inside", [True, False])
def test_splits_may_lie_in_both_folders_or_hold_both(tmp_path, inside):
    for split in ("train", "val"):
        parts = [(f"{part}/{split}" if inside else f"{split}/{part}") for part in ("images", "xml")]
        images(tmp_path / parts[0], f"{split}.jpg")
        write(tmp_path / parts[1] / f"{split}.xml", thing(DOG))
    found = VOC.find(tmp_path)
    assert {split: names(VOC.read(*parts)) for split, parts in found.items()} == {
        "train": ["train.jpg"], "val": ["val.jpg"],
    }  # fmt: skip


def test_images_of_another_split_in_one_folder_are_no_backgrounds(tmp_path):
    images(tmp_path / "images", "a.jpg", "b.jpg", "c.jpg")
    write(tmp_path / "annotations/train/a.xml", thing(DOG))
    write(tmp_path / "annotations/val/b.xml", thing(DOG))
    found = VOC.find(tmp_path)
    assert {split: names(VOC.read(*parts)) for split, parts in found.items()} == {
        "train": ["a.jpg"], "val": ["b.jpg"],
    }  # fmt: skip


def test_a_yaml_names_the_folders_and_the_list(tmp_path):
    kit(tmp_path, "a", "b", "c")
    (tmp_path / "three.txt").write_text('D:\\VOC\\c.JPG\n./b.png\n"a" 1\n')
    (tmp_path / "data.yaml").write_text(
        "train: {images: JPEGImages, annotations: Annotations, list: three.txt}\n"
        "val: [{images: JPEGImages, annotations: Annotations}]\n"
    )
    dataset = load_dataset(tmp_path / "data.yaml")
    assert dataset.class_names == ("dog",) and dataset.train[0].format == "Pascal VOC"
    assert names(VOC.read(dataset.train[0])) == ["c.jpg", "b.jpg", "a.jpg"]
    assert names(VOC.read(dataset.val[0])) == ["a.jpg", "b.jpg", "c.jpg"]


def write_sets(tmp_path: Path, train: str, val: str) -> tuple[list[str], list[str]]:
    """Return the images of each split; a is in the first set, b in the second, c in none."""
    images(tmp_path / "imgs", "a.jpg", "b.jpg", "c.jpg")
    write(tmp_path / "first/a.xml", thing(DOG))
    write(tmp_path / "second/b.xml", thing(DOG))
    (tmp_path / "list.txt").write_text("a\nc\n")
    (tmp_path / "data.yaml").write_text(f"train: {{{train}}}\nval: {{{val}}}\n")
    dataset = load_dataset(tmp_path / "data.yaml")
    train_names, val_names = (
        [name for folder in entries for name in names(VOC.read(folder))]
        for entries in (dataset.train, dataset.val)
    )
    return train_names, val_names


@pytest.mark.parametrize("others_images", ["imgs", "./imgs/../imgs", "."])
def test_images_of_another_split_are_no_backgrounds_in_a_yaml(tmp_path, others_images):
    second = f"images: {others_images}, annotations: second"
    found = write_sets(tmp_path, "images: imgs, annotations: first", second)
    assert found == (["a.jpg"], ["b.jpg"])


def test_images_without_a_file_are_backgrounds_in_a_yaml_where_no_other_split_has_them(tmp_path):
    first = "images: imgs, annotations: first"
    everything = ["a.jpg", "b.jpg", "c.jpg"]
    assert write_sets(tmp_path, first, first) == (everything, everything)
    second = "images: imgs, annotations: second"
    assert write_sets(tmp_path, f"{first}, list: list.txt", second)[0] == ["a.jpg", "c.jpg"]


def test_names_in_a_list_may_end_like_its_column(tmp_path):
    images(tmp_path, "cat 1.jpg", "cat.jpg", "sub/dog.png")
    for name in ("cat 1", "cat", "sub/dog"):
        write(tmp_path / f"{name}.xml", thing(DOG))
    (tmp_path / "list.txt").write_text("cat 1\ncat -1\nsub/dog\nsub/gone\n", "utf-8-sig")
    found = read(tmp_path, tmp_path / "list.txt")
    assert names(found) == ["cat 1.jpg", "cat.jpg", "dog.png", "gone.jpg"]
    assert found.starts.tolist() == [0, 1, 2, 3, 3]


def test_a_list_that_cannot_be_read_is_an_error(tmp_path):
    images(tmp_path, "a.jpg")
    for content in (b"\xff\xfe", b"a\0b"):
        (tmp_path / "list.txt").write_bytes(content)
        with pytest.raises(DatasetError, match="list.txt: a list of images is needed"):
            read(tmp_path, tmp_path / "list.txt")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"<annotation/>", True),
        (b"<annotation>", True),
        (b"<?xml version='1.0'?>\n<!-- x --><annotation verified='yes'>", True),
        ("<annotation>".encode("utf-16"), True),
        (b"<annotations><image/></annotations>", False),  # CVAT's
        (b"", False),
    ],
)
def test_a_folder_is_recognised_by_a_file_in_it(tmp_path, content, expected):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/a.xml").write_bytes(content)
    assert VOC.accepts(tmp_path) == expected
    assert not VOC.accepts(tmp_path / "inner/a.xml") and not VOC.accepts(tmp_path / "none")
    assert VOC.find(tmp_path) == {} and VOC.find(tmp_path / "none") == {}
    assert set(VOC.find(tmp_path / "inner")) == ({""} if expected else set())
