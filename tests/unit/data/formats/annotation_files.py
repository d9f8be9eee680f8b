"""Annotations of one image of 200 x 100 px, as each labelling tool writes them."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from duet.utils.data.sources.annotations import formats, read_annotations
from duet.utils.data.sources.formats.format import AnnotatedFolder, Annotations

WIDTH, HEIGHT = 200, 100
SIZE = {"original_width": WIDTH, "original_height": HEIGHT, "image_rotation": 0}
CATEGORIES = [{"id": 9, "name": "owl"}, {"id": 2, "name": "cat"}, {"id": 5, "name": "dog"}]
CVAT_META = """<meta><task><labels><label><name>plate</name><attributes></attributes></label>
<label><name>dog</name></label><label><name>night</name><type>tag</type></label>
<label><name>body</name><type>skeleton</type></label>
<label><name>knee</name><type>points</type><parent>body</parent></label></labels></task></meta>"""
CSV_HEADER = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,Is,IsGroupOf"


def voc(objects: Iterable[str], name: str = "a.jpg", database: str = "Unknown") -> str:
    return (
        f"<annotation><folder>photos</folder><filename>{name}</filename>"
        f"<path>C:\\{name}</path><source><database>{database}</database></source>"
        f"<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>"
        f"{''.join(objects)}</annotation>"
    )


def voc_box(
    left: Any, top: Any, right: Any, bottom: Any, label: str = "dog", more: str = ""
) -> str:
    corners = f"<xmin>{left}</xmin><ymin>{top}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax>"
    return f"<object><name>{label}</name>{more}<bndbox>{corners}</bndbox></object>\n"


def labelme(shapes: Iterable[Any], name: str = "a.jpg", **more: Any) -> str:
    return json.dumps(
        {"version": "5.5.0", "flags": {}, "shapes": list(shapes), "imagePath": name,
         "imageData": None, "imageHeight": HEIGHT, "imageWidth": WIDTH, **more}
    )  # fmt: skip


def labelme_shape(kind: Any, points: Any, label: Any = "dog", **more: Any) -> dict[str, Any]:
    return {"label": label, "points": points, "group_id": None, "shape_type": kind, **more}


def cvat(shapes: Iterable[str], name: str = "a.jpg", more: str = "") -> str:
    size = more or f'width="{WIDTH}" height="{HEIGHT}"'
    return f'<image id="0" name="{name}" {size}>{"".join(shapes)}</image>'


def cvat_file(*images: str) -> str:
    head = '<?xml version="1.0" encoding="utf-8"?>\n<annotations><version>1.1</version>'
    return f"{head}{CVAT_META}{''.join(images)}</annotations>"


def cvat_box(
    left: Any, top: Any, right: Any, bottom: Any, more: str = "", label: str = "dog"
) -> str:
    return f'<box label="{label}" xtl="{left}" ytl="{top}" xbr="{right}" ybr="{bottom}" {more}/>'


def task(regions: Iterable[Any], image: Any = "/data/upload/1/0a1b2c3d-a.jpg", **more: Any) -> dict:
    made = {"was_cancelled": False, "ground_truth": False, "result": list(regions)}
    ghost = region(x=1, y=1, width=5, height=5, rectanglelabels=["ghost"])
    return {
        "id": more.pop("id", 41), "annotations": [made | more], "data": {"image": image},
        "predictions": [{"result": [ghost]}],
    }  # fmt: skip


def region(**value: Any) -> dict[str, Any]:
    return {**SIZE, "id": "r", "type": "x", "value": value}


def studio_box(x: Any, y: Any, width: Any, height: Any, label: str = "dog", turn: Any = 0) -> dict:
    place = {"x": x, "y": y, "width": width, "height": height, "rotation": turn}
    return region(**place, rectanglelabels=[label])


def coco(objects: Iterable[Any], names: Iterable[str] = ("a.jpg", "b.jpg"), **more: Any) -> dict:
    """Return a file of images with the ids 7, 8, ..."""
    images = [
        {"id": 7 + number, "file_name": name, "width": WIDTH, "height": HEIGHT}
        for number, name in enumerate(names)
    ]
    sections = {"images": images, "annotations": list(objects), "categories": CATEGORIES}
    return {"info": {"year": 2017}, **sections, **more}


def coco_object(box: Any, segmentation: Any = (), image: Any = 7, **more: Any) -> dict[str, Any]:
    return {
        "id": 100, "image_id": image, "category_id": 5, "bbox": box, "area": 1.0, "iscrowd": 0,
        "segmentation": segmentation, **more,
    }  # fmt: skip


def csv_row(box: Any, label: str = "dog", image: str = "a", group: Any = 0) -> str:
    left, top, right, bottom = box
    return f"{image},x,{label},1,{left},{right},{top},{bottom},0,0,{group}"


class Case(NamedTuple):
    """How objects of a.jpg become the file of a format; b.jpg has one box of 20, 10, 60, 40."""

    file: str
    box: Any  # an object of 20, 20, 80, 60
    text: Callable[[Iterable[Any]], str]
    more: dict[str, str] = {}  # other files


CASES = {
    "Pascal VOC": Case(
        "a.xml",
        voc_box(20, 20, 80, 60),
        voc,
        {"b.xml": voc([voc_box(20, 10, 60, 40)], "b.jpg")},
    ),
    "LabelMe": Case(
        "a.json",
        labelme_shape("rectangle", [[80, 20], [20, 60]]),
        labelme,
        {"b.json": labelme([labelme_shape("rectangle", [[20, 10], [60, 40]])], "b.jpg")},
    ),
    "CVAT for images 1.1": Case(
        "annotations.xml",
        cvat_box(20, 20, 80, 60),
        lambda shapes: cvat_file(cvat(shapes), cvat([cvat_box(20, 10, 60, 40)], "b.jpg")),
    ),
    "Label Studio JSON": Case(
        "tasks.json",
        studio_box(10, 20, 30, 40),
        lambda regions: json.dumps(
            [task(regions), task([studio_box(10, 10, 20, 30)], "b.jpg", id=2)]
        ),
    ),
    "COCO JSON": Case(
        "a.json",
        coco_object([20, 20, 60, 40]),
        lambda objects: json.dumps(coco([*objects, coco_object([20, 10, 40, 30], image=8)])),
    ),
    "OpenImages CSV": Case(
        "train-annotations-bbox.csv",
        csv_row((0.1, 0.2, 0.4, 0.6)),
        lambda rows: "\n".join([CSV_HEADER, *rows, csv_row((0.1, 0.1, 0.3, 0.4), image="b")]),
    ),
}


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def write(path: Path, content: Any) -> Path:
    """Write a text, or another value as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def read_case(folder: Path, name: str, objects: Iterable[Any]) -> Annotations:
    """Return the annotations of a.jpg and b.jpg in a format."""
    case = CASES[name]
    return read_text(folder, name, case.text(objects), case.more)


def read_text(
    folder: Path, name: str, text: Any, more: dict[str, str] | None = None
) -> Annotations:
    """Return the annotations in a file of a format beside a.jpg and b.jpg."""
    touch(folder, "a.jpg", "b.jpg")
    for file, content in {CASES[name].file: text, **(more or {})}.items():
        write(folder / file, content)
    (kind,) = [kind for kind in formats() if kind.name == name]
    is_file = not kind.accepts(folder)
    place = folder / CASES[name].file if is_file else folder
    return read_annotations(AnnotatedFolder(name, place, folder))
