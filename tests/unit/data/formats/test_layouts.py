"""Which folders and files each format is recognised by, and which image each annotation is of."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

from duet.utils.data.sources.annotations import formats, read_annotations
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.formats.format import UNKNOWN, AnnotatedFolder, Splits
from duet.utils.data.sources.splits import images_of as list_split
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import DatasetError
from tests.environments import shared_path
from tests.unit.data.formats.annotation_files import (
    CASES,
    coco,
    coco_object,
    csv_row,
    cvat,
    cvat_file,
    labelme,
    labelme_shape,
    read_text,
    studio_box,
    task,
    touch,
    voc,
    voc_box,
    write,
)

VOC, LABELME, CVAT, STUDIO, COCO, CSV = CASES
BOX = voc([voc_box(20, 10, 60, 40)], "none.jpg")
SHAPE = labelme([labelme_shape("rectangle", [[1, 2], [9, 9]])], "none.png")
CSV_TEXT = f"ImageID,,LabelName,,XMin,XMax,YMin,YMax,,,IsGroupOf\n{csv_row((0.1, 0.1, 0.3, 0.4))}"
NAMES = "LabelName,DisplayName\ndog,Dog\n"


def splits_in(folder: Path) -> list[Splits]:
    """Return what each format finds that finds something."""
    return [found for kind in formats() if (found := kind.find(folder))]


def images_of(folder: Path, split: str) -> list[str]:
    """Return the images of a split that the only format of a folder finds, from the folder."""
    (found,) = splits_in(folder)
    annotations = [read_annotations(part) for part in found[split]]
    return [os.path.relpath(path, folder) for one in annotations for path in one.paths]


def subsets(*pairs: tuple[str, str]) -> str:
    size = 'width="200" height="100" subset="{}"'
    return cvat_file(*(cvat([], name, size.format(subset)) for name, subset in pairs))


# The files of a folder (images are empty), and the images of each split.
LAYOUTS = [
    *(({f"{images}/a.jpg": "", f"{images}/b.jpg": "", f"{files}/a.{end}": text},
       {"": [f"{images}/a.jpg", f"{images}/b.jpg"]})
      for end, text in (("xml", BOX), ("json", SHAPE))
      for images, files in (("JPEGImages", "Annotations"), ("images", "xml"), ("img", "."))),
    *(({f"{split}/{split}.jpg": "" for split in ("train", "valid")}
       | {f"{split}/{split}.{end}": text for split in ("train", "valid")},
       {"train": ["train/train.jpg"], "val": ["valid/valid.jpg"]})
      for end, text in (("xml", BOX), ("json", SHAPE))),
    *(({place.format("images", split) + f"/{split}.jpg": "" for split in ("train", "val")}
       | {place.format("xml", split) + f"/{split}.xml": BOX for split in ("train", "val")},
       {split: [place.format("images", split) + f"/{split}.jpg"] for split in ("train", "val")})
      for place in ("{0}/{1}", "{1}/{0}")),
    # Images of another split in one folder are no backgrounds.
    ({"images/a.jpg": "", "images/b.jpg": "", "images/c.jpg": "",
      "annotations/train/a.xml": BOX, "annotations/val/b.xml": BOX},
     {"train": ["images/a.jpg"], "val": ["images/b.jpg"]}),
    ({"JPEGImages/a.jpg": "", "JPEGImages/b.jpg": "", "Annotations/a.xml": BOX,
      "Annotations/b.xml": BOX, "ImageSets/Main/train.txt": "b -1\r\na  1\r\n\r\n",
      "ImageSets/Main/val.txt": "b\n", "ImageSets/Main/trainval.txt": "a\nb\n",
      "ImageSets/Main/dog_train.txt": "a  1\n", "ImageSets/Main/test.txt": ""},
     {"train": ["JPEGImages/b.jpg", "JPEGImages/a.jpg"], "val": ["JPEGImages/b.jpg"]}),
    ({"JPEGImages/a.jpg": "", "Annotations/a.xml": BOX, "ImageSets/trainval.txt": "a",
      "ImageSets/test.txt": "a"}, {"train": ["JPEGImages/a.jpg"], "test": ["JPEGImages/a.jpg"]}),
    ({"VOC2007/JPEGImages/a.jpg": "", "VOC2007/Annotations/a.xml": BOX,
      "VOC2007/ImageSets/Main/train.txt": "a", "VOC2012/JPEGImages/b.jpg": "",
      "VOC2012/Annotations/b.xml": BOX},
     {"train": ["VOC2007/JPEGImages/a.jpg", "VOC2012/JPEGImages/b.jpg"]}),
    ({"train/a.jpg": "", "train/_annotations.coco.json": coco([], ["a.jpg"]), "valid/b.jpg": "",
      "valid/_annotations.coco.json": coco([], ["b.jpg"])},
     {"train": ["train/a.jpg"], "val": ["valid/b.jpg"]}),
    *(({f"{train}/a.jpg": "", f"{val}/b.jpg": "",
        "annotations/instances_train2017.json": coco([], ["a.jpg"]),
        "annotations/instances_val2017.json": coco([], ["b.jpg"]),
        "annotations/instances_val2014.json": coco([], ["absent.jpg"]),
        "annotations/captions_val2017.json": {"annotations": []}},
       {"train": [f"{train}/a.jpg"], "val": [f"{val}/b.jpg"]})
      for train, val in (("train2017", "val2017"), ("images/train2017", "images/val2017"),
                         ("train", "val"), ("images", "images"), ("train/images", "val/images"))),
    ({"images/default/a.jpg": "", "annotations/instances_default.json": coco([], ["a.jpg"])},
     {"": ["images/default/a.jpg"]}),
    ({"images/Train/a.jpg": "", "images/Validation/deep/b.jpg": "", "images/Validation/a.jpg": "",
      "annotations.xml": subsets(("a.jpg", "Train"), ("deep/b.jpg", "Validation"),
                                 ("a.jpg", "Validation"), ("d.jpg", "Train"), ("c.jpg", "Test"))},
     {"train": ["images/Train/a.jpg", "images/Train/d.jpg"], "test": ["images/Test/c.jpg"],
      "val": ["images/Validation/deep/b.jpg", "images/Validation/a.jpg"]}),
    # Labels of an absent image go to no image of other subsets.
    ({"images/Train/1.jpg": "", "a.xml": subsets(("1.jpg", "Train"), ("1.jpg", "default"))},
     {"train": ["images/Train/1.jpg"], "": ["images/default/1.jpg"]}),
    ({"imgs/a.jpg": "", "annotations.xml": subsets(("a.jpg", "default"))}, {"": ["imgs/a.jpg"]}),
    ({"train/images/a.jpg": "", "valid/images/a.jpg": "", "train/x.xml": cvat_file(cvat([])),
      "valid/x.xml": cvat_file(cvat([]))},
     {"train": ["train/images/a.jpg"], "val": ["valid/images/a.jpg"]}),
    ({"images/a.jpg": "", "train.json": [task([])], "val.json": [task([])]},
     {"train": ["images/a.jpg"], "val": ["images/a.jpg"]}),
    ({"train/a.jpg": "", "oidv6-train-annotations-bbox.csv": CSV_TEXT,
      "class-descriptions-boxable.csv": NAMES}, {"train": ["train/a.jpg"]}),
    ({"Dataset/validation/Dog/a.jpg": "", "csv_folder/validation-annotations-bbox.csv": CSV_TEXT,
      "csv_folder/class-descriptions-boxable.csv": NAMES},
     {"val": ["Dataset/validation/Dog/a.jpg"]}),
    ({"test/data/a.jpg": "", "test/labels/detections.csv": CSV_TEXT,
      "test/metadata/classes.csv": NAMES}, {"test": ["test/data/a.jpg"]}),
    ({"images/a.JPG": "", "boxes.csv": CSV_TEXT}, {"": ["images/a.JPG"]}),
]  # fmt: skip


@pytest.mark.parametrize(("files", "expected"), LAYOUTS)
def test_layout_has_its_splits_and_images(tmp_path, files, expected):
    root = tmp_path / "data"  # the name of the folder above may hold that of a split
    for name, content in files.items():
        write(root / name, content)
    (found,) = splits_in(root)
    assert {split: images_of(root, split) for split in found} == expected


def test_two_files_or_lists_for_one_split_are_an_error(tmp_path):
    for name in ("train.json", "train-2.json"):
        write(tmp_path / "one" / name, [task([])])
    with pytest.raises(DatasetError, match=r"train-2\.json and .*train\.json are both"):
        splits_in(tmp_path / "one")
    touch(tmp_path / "two", "JPEGImages/a.jpg")
    write(tmp_path / "two/Annotations/a.xml", BOX)
    for name in ("train2", "training"):
        write(tmp_path / f"two/ImageSets/Main/{name}.txt", "a")
    with pytest.raises(DatasetError, match=r"train2\.txt and .*training\.txt are both .*'train'"):
        splits_in(tmp_path / "two")


@pytest.mark.parametrize(
    ("file", "text", "images"),
    [
        ("a.json", coco([], ["a.jpg"]), "."),
        ("a.json", coco([], ["a.jpg"]), "images"),
        ("annotations/a.json", coco([], ["a.jpg"]), "images"),
        ("annotations/instances_val2017.json", coco([], ["a.jpg"]), "val2017"),
        ("my-test.xml", cvat_file(cvat([])), "test"),
        ("tasks.json", [task([studio_box(1, 1, 9, 9)])], "images"),
        ("boxes.csv", CSV_TEXT, "deep/folder"),
    ],
)
def test_annotation_file_finds_its_images(tmp_path, file, text, images):
    touch(tmp_path, f"{images}/a.jpg")
    dataset = load_dataset(write(tmp_path / file, text), splits=("train",))
    (path,) = read_annotations(*dataset.train).paths
    assert os.path.normpath(path) == os.path.normpath(tmp_path / images / "a.jpg")


def test_annotations_are_read_once_for_names_and_images(tmp_path):
    touch(tmp_path, "train/a.jpg", "valid/b.jpg")
    for place in ("train/a", "valid/b"):
        write(tmp_path / f"{place}.xml", BOX)
    dataset = load_dataset(tmp_path)
    (tmp_path / "train/a.xml").write_text("damaged")
    for expected in ("", "a.xml: line 1: invalid XML: syntax error"):  # the second reads anew
        (image,) = list_split(dataset, "train")
        assert image.annotations.broken == (expected,)
    assert [len(one) for one in dataset.annotations.values()] == [1]  # of val


def test_annotations_without_an_image_are_read_once_too(tmp_path):
    touch(tmp_path, "train/a.jpg")
    write(tmp_path / "train/a.xml", BOX)
    dataset = load_dataset(tmp_path, splits=("train",))
    (entry,) = dataset.train
    dataset.annotations[entry] = dataclasses.replace(dataset.annotations[entry], paths=())
    with pytest.raises(DatasetError, match="has no images"):
        list_split(dataset, "train")


def test_only_annotations_of_requested_splits_are_kept(tmp_path):
    touch(tmp_path, "train/a.jpg", "valid/b.jpg")
    for place in ("train/a", "valid/b"):
        write(tmp_path / f"{place}.xml", BOX)
    dataset = load_dataset(tmp_path, splits=("val",))
    assert [*dataset.annotations] == [*dataset.val] and dataset.train


@pytest.mark.parametrize(
    ("file", "content", "name"),
    [
        ("a.xml", "<annotation/>", VOC),
        ("a.xml", "<?xml version='1.0'?>\n<!-- x --><annotation verified='yes'>", VOC),
        ("a.xml", "<annotations/>", CVAT),
        ("a.json", "\ufeff\n " + labelme([]), LABELME),
        ("a.json", '{"imageData": "' + "A" * 100_000 + '", "shapes": []}', LABELME),
        ("a.json", '[{"annotations": []}]', STUDIO),
        *((f"a.{end}", text, None) for end in ("xml", "json", "csv") for text in ("", "\0" * 999)),
        *(("a.json", text, None) for text in ("[]", "{}", "[1]", '[{"shapes": [], "tracks": []}]')),
        ("a.csv", "ImageID,Source,LabelName,Confidence\n", None),
        ("a.csv", "MaskPath,ImageID,LabelName,BoxID,BoxXMin\n", None),
    ],
)
def test_format_is_recognised_from_the_start_of_a_file(tmp_path, file, content, name):
    write(tmp_path / file, content)
    os.mkfifo(tmp_path / f"fifo.{file[2:]}")
    accepted = {kind.name for kind in formats() for place in (tmp_path, tmp_path / file)
                if kind.accepts(place)}  # fmt: skip
    assert accepted == ({name} if name else set())


def test_coco_file_is_recognised_after_megabytes_of_text(tmp_path):
    info = {"description": "x" * 30_000_000}
    text = json.dumps({**coco([coco_object([1, 1, 9, 9])], ["a.jpg"]), "info": info})
    touch(tmp_path, "train/a.jpg")
    write(tmp_path / "annotations/instances_train.json", text)
    assert images_of(tmp_path, "train") == ["train/a.jpg"]
    write(tmp_path / "other.json", json.dumps({"info": info, "shapes": []}))
    (accepts,) = (kind.accepts for kind in formats() if kind.name == COCO)
    assert not accepts(tmp_path / "other.json")


def test_unrelated_files_beside_images_are_ignored(tmp_path):
    touch(tmp_path, "a.jpg", "c.PNG", "._a.jpg", ".cache/d.jpg", "notes.txt")
    for name, text in (("a", SHAPE), ("package", '{"name": "x"}'), ("list", "[1]")):
        write(tmp_path / f"{name}.json", text)
    assert images_of(tmp_path, "") == ["a.jpg", "c.PNG"]
    write(tmp_path / "c.json", '{"name": "x"}')
    found = read_annotations(AnnotatedFolder(LABELME, tmp_path, tmp_path))
    assert found.broken == ("", "c.json is not in the format LabelMe")


def test_xml_file_finds_its_image_by_stem_then_by_content(tmp_path):
    touch(
        tmp_path, "a.jpg", "a.png", "b.bmp", "other name.jpg", "inner/d.jpg", "v1.2.jpg", "猫.jpg"
    )
    for name, image in (
        ("a", "a.png"),  # of two with its name
        ("b", "a.jpg"),  # copied; a.jpg is not its image
        ("c", "..\\x\\other name.jpg"),
        ("inner/d", "d"),
        ("v1.2", ""),
        ("猫", ""),
        ("gone", "gone.jpg"),
        ("z", "/home/a.png"),  # the image of a.xml
    ):
        write(tmp_path / f"{name}.xml", voc([], image))
    found = read_annotations(AnnotatedFolder(VOC, tmp_path, tmp_path))
    sizes = zip(found.paths, found.sizes.tolist(), strict=True)
    labelled = {os.path.relpath(path, tmp_path) for path, size in sizes if size != list(UNKNOWN)}
    # The scan reports that gone.jpg and z.png are not there.
    assert labelled == {"a.png", "b.bmp", "inner/d.jpg", "gone.jpg", "other name.jpg", "v1.2.jpg",
                        "z.png", "猫.jpg"}  # fmt: skip
    assert len(found) == len(labelled) + 1


@pytest.mark.parametrize(
    ("images", "files", "labelled", "listed"),
    [
        (("cam2/1.jpg", "cam2/2.jpg"), ("cam1/1", "cam2/2"), {"cam2/2.jpg"}, [False, True]),
        (("1.jpg", "cam2/1.jpg"), ("cam1/1",), set(), [False, True]),
        (("one/a.jpg", "two/a.jpg", "one/b.jpg"), ("a", "b"), {"one/b.jpg"}, [False, True]),
        (("a.jpg", "in/b.jpg", "cam/c.jpg"), ("in/a", "b", "x/cam/c"), {"in/b.jpg", "cam/c.jpg"},
         [False]),
        (("a.jpg", "in/b.jpg", "cam/c.jpg"), ("part/a", "b", "x/cam/c"),
         {"a.jpg", "in/b.jpg", "cam/c.jpg"}, [False, True]),
    ],
)  # fmt: skip
def test_annotation_never_matches_image_in_another_folder(
    tmp_path, images, files, labelled, listed
):
    touch(tmp_path / "images", *images)
    for name in files:
        write(tmp_path / "annotations" / f"{name}.xml", BOX)
    for is_listed in listed:
        image_list = write(tmp_path / "list.txt", "\n".join(images)) if is_listed else None
        folder = AnnotatedFolder(VOC, tmp_path / "annotations", tmp_path / "images", image_list)
        found = read_annotations(folder)
        counts = zip(found.paths, np.diff(found.starts).tolist(), strict=True)
        there = {os.path.relpath(path, folder.images): number for path, number in counts
                 if os.path.exists(path)}  # fmt: skip
        assert there == {name: int(name in labelled) for name in images}


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("a.png", "a.png"),
        ("images/sub/a.png", "sub/a.png"),
        ("/home/me/data/images/a.png", "a.png"),
        ("../../../sub/a.png", "sub/a.png"),
        ("größe 1 🦉.png", "größe 1 🦉.png"),
        ("a" * 2000 + ".png", "a" * 2000 + ".png"),  # longer than a name can be
    ],
)
def test_coco_names_resolve_only_inside_the_image_folder(tmp_path, name, place):
    folder = tmp_path / "data" / "images"
    touch(folder, "a.png", "sub/a.png", *([place] if len(place) < 200 else []))
    touch(tmp_path / "sub", "a.png")
    file = write(folder / "a.json", coco([], [name]))
    assert read_annotations(AnnotatedFolder(COCO, file, folder)).paths == (str(folder / place),)


@pytest.mark.parametrize(
    ("image", "file"),
    [
        ("/data/upload/1/0a1b2c3d-a.jpg", "a.jpg"),
        ("/data/local-files/?d=some%2Ffolder/a.jpg", "a.jpg"),
        ("https://host/x/a.jpg?X-Amz-Credential=b%2Fc", "a.jpg"),
        ("/data/upload/1/0a1b2c3d-my_cat_1.jpg", "my cat (1).jpg"),
        ("/data/upload/1/0a1b2c3d-b.jpg", "0a1b2c3d-b.jpg"),
        ("s3://bucket/图 🐈#50%.jpg", "图 🐈#50%.jpg"),
        ("https://host/data/upload/0a1b2c3d-c.jpg", "cam2/c.jpg"),
        ("s3://bucket/cam2/d.jpg", "cam2/d.jpg"),
    ],
)
def test_label_studio_images_are_found_by_name(tmp_path, image, file):
    touch(tmp_path, file, "cam1/d.jpg")
    item = task([], image)
    item["data"] = {"text": "a fine day", "photo": image}
    found = read_text(tmp_path, STUDIO, [item])
    assert found.paths[0] == str(tmp_path / file) and not any(found.broken)


@pytest.mark.parametrize("image", ["", None, 5, "data:image/png;base64,AAAA", "x" * 5000 + ".jpg"])
def test_label_studio_task_without_file_name_is_refused(tmp_path, image):
    (reason,) = read_text(tmp_path, STUDIO, [task([], image)]).broken
    assert "accepted: the name of a file" in reason and len(reason) < 300


@pytest.mark.parametrize("name", CASES)
def test_image_list_selects_some_images(tmp_path, name):
    case = CASES[name]
    touch(tmp_path, "a.jpg", "b.jpg", "cam/b.jpg")
    for file, text in {case.file: case.text([case.box]), **case.more}.items():
        write(tmp_path / file, text)
    write(tmp_path / "list.txt", "./b.jpg\n")
    place = tmp_path if name in (VOC, LABELME) else tmp_path / case.file
    found = read_annotations(AnnotatedFolder(name, place, tmp_path, tmp_path / "list.txt"))
    assert found.paths == (str(tmp_path / "b.jpg"),) and len(found.class_index) == 1
    write(tmp_path / "list.txt", "cam/none.jpg\n")
    found = read_annotations(AnnotatedFolder(name, place, tmp_path, tmp_path / "list.txt"))
    assert not len(found.class_index)


def test_annotated_images_are_not_backgrounds_elsewhere(tmp_path):
    touch(tmp_path / "imgs", "a.jpg", "b.jpg", "c.jpg")
    for name in ("first/a.xml", "second/b.xml"):
        write(tmp_path / name, BOX)
    write(tmp_path / "list.txt", "a\nc\n")
    first, everything = "images: imgs, annotations: first", ["a.jpg", "b.jpg", "c.jpg"]
    for train, val, expected in (
        (first, "images: imgs, annotations: second", (["a.jpg"], ["b.jpg"])),
        (first, "images: ., annotations: second", (["a.jpg"], ["b.jpg"])),
        (first, first, (everything, everything)),
        (f"{first}, list: list.txt", "images: imgs, annotations: second", (["a.jpg", "c.jpg"],)),
    ):
        write(tmp_path / "data.yaml", f"train: {{{train}}}\nval: {{{val}}}\n")
        dataset = load_dataset(tmp_path / "data.yaml")
        for entries, names in zip((dataset.train, dataset.val), expected, strict=False):
            assert [Path(path).name for path in read_annotations(*entries).paths] == names


def test_voc_bccd_equals_its_yolo_conversion():
    """bccd's label files were written from these XML files, with six decimals."""
    voc_set = load_dataset(shared_path("data/bccd/voc"))
    yolo = load_dataset(shared_path("data/bccd/bccd.yaml"))
    assert voc_set.class_names == ("Platelets", "RBC", "WBC")
    number_of = np.array([yolo.class_names.index(name) for name in voc_set.class_names])
    for split, number in (("train", 292), ("val", 72)):
        pairs = list(zip(load_split(voc_set, split), load_split(yolo, split), strict=True))
        assert len(pairs) == number
        for mine, other in pairs:
            assert mine.image_path.name == other.image_path.name
            tables = [
                np.column_stack([classes, boxes])
                for classes, boxes in (
                    (number_of[mine.class_index], mine.boxes_cxcywh_norm),
                    (other.class_index, other.boxes_cxcywh_norm),
                )
            ]
            found, expected = (table[np.lexsort(table.T[::-1])] for table in tables)
            # Half of the sixth decimal, and float32.
            np.testing.assert_allclose(found, expected, rtol=0, atol=0.5e-6 + 1e-7)
