"""Images of each kind, and packed ones; what labelling tools export, and names of classes."""

import base64
import io
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from duet.utils.data.check.inspection import inspect
from duet.utils.data.formats.labelme import LABELME
from duet.utils.data.image.fingerprint import fingerprint_of
from duet.utils.data.records.layout import read_record
from duet.utils.data.records.record_images import read_record_images
from duet.utils.data.sources.annotations import annotated_images, formats, read_annotations
from duet.utils.data.sources.formats.format import AnnotatedFolder, FileNotes, Format, collect
from duet.utils.data.sources.formats.names import listed_in
from duet.utils.data.sources.formats.voc import VOC
from duet.utils.data.sources.image_sources import ImageFile
from duet.utils.data.sources.label_file import BrokenLabelError
from duet.utils.data.sources.recognised import recognise
from duet.utils.data.sources.samples import decode
from duet.utils.data.sources.splits import scan_samples
from duet.utils.detect.media.image_file import decode_image
from duet.utils.errors import UserError
from duet.utils.image_limits import MAX_PIXELS
from tests.fuzz.reader import MIB, Reader, as_text
from tests.fuzz.text_readers import JSON_TOKENS
from tests.unit.data.image.test_kinds import HEIC
from tests.unit.data.image_files import KINDS, index_entry, index_record, record_file, turned

# Decoding may cost what the largest accepted image needs; its size is read from the header.
DECODED_BYTES = 1024 * MIB
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_TOKENS = (
    b"IHDR", b"PLTE", b"IDAT", b"IEND", b"acTL", b"fcTL", b"fdAT", b"eXIf", b"iCCP", b"tRNS",
    b"zTXt", b"\x00\x00\x00\x0d",
)  # fmt: skip
JPEG_TOKENS = (
    b"\xff\xd8", b"\xff\xd9", b"\xff\xda", b"\xff\xc0\x00\x11\x08", b"\xff\xc2", b"\xff\xc4",
    b"\xff\xdb", b"\xff\xe1\x00\x20Exif\x00\x00", b"\xff\xdd\x00\x04\x00\x01", b"\xff\xee",
)  # fmt: skip


def read_one(path: Path) -> object:
    """Scan an image and, if it is usable, decode it; as training and detect.py do."""
    path.with_suffix(".txt").write_bytes(b"0 0.5 0.5 0.25 0.25\n")
    report = scan_samples([path], num_classes=3)
    fingerprint_of(np.frombuffer(path.read_bytes(), np.uint8))
    images = [decode(sample) for sample in report.samples]
    seen = decode_image(path.read_bytes(), MAX_PIXELS)
    assert (seen[..., ::-1] == images[0]).all()
    return images


def read_checked(path: Path) -> object:
    """Look at an image as the check of a dataset does: what is not used has a finding."""
    path.with_suffix(".txt").write_bytes(b"0 0.5 0.5 0.25 0.25\n")
    image, found = inspect("train", ImageFile(path), 3)
    if not image.is_used:
        assert found, "left out without a reason"
        raise UserError("; ".join(finding.text for finding in found))
    return image


def read_records(path: Path) -> object:
    images = read_record_images(path)
    for image in images:
        read_record(image.place)
    return scan_samples(images, num_classes=2)


def encoded(suffix: str) -> Callable[[], list[bytes]]:
    """Return a function that returns two images of a kind, noise and grey, and its other forms."""

    def make() -> list[bytes]:
        noise = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
        images = (noise, np.full((40, 16), 128, np.uint8))
        return [cv2.imencode(suffix, image)[1].tobytes() for image in images] + forms(suffix)

    return make


def forms(suffix: str) -> list[bytes]:
    """Return images of a kind with alpha, more bits, a turn or several frames."""
    named = {".png": "PNG ", ".webp": "WEBP ", ".tiff": "TIFF ", ".bmp": "BMP "}.get(suffix, "none")
    others = [kind.content for name, kind in KINDS.items() if name.startswith(named)]
    exif = [turned(named.strip(), 6)] if suffix in (".png", ".webp", ".tiff") else []
    return [content for content in others + exif if len(content) < 8000]


def pictures(kind: str) -> Callable[[], list[bytes]]:
    """Return a function that returns images of a kind that Pillow writes, one of them animated."""

    def make() -> list[bytes]:
        noise = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
        images = [Image.fromarray(noise), Image.new("RGB", (40, 16), "gray")]
        files = [io.BytesIO() for _ in range(3)]
        for image, file in zip(images, files, strict=False):
            image.save(file, kind)
        images[0].save(files[2], kind, save_all=True, append_images=[images[0].rotate(90)])
        others = [seed.content for name, seed in KINDS.items() if name.startswith(kind)]
        return [*(file.getvalue() for file in files), *others]

    return make


def animated_png() -> list[bytes]:
    """Return an animated PNG of two frames beside the plain ones."""
    raw = b"".join(b"\x00" + bytes(range(48)) for _ in range(16))
    frame = struct.pack(">IIIIHHBB", 16, 16, 0, 0, 1, 10, 0, 0)
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)),
        (b"acTL", struct.pack(">II", 2, 0)),
        (b"fcTL", struct.pack(">I", 0) + frame),
        (b"IDAT", zlib.compress(raw)),
        (b"fcTL", struct.pack(">I", 1) + frame),
        (b"fdAT", struct.pack(">I", 2) + zlib.compress(raw)),
        (b"IEND", b""),
    ]
    return [*encoded(".png")(), PNG_SIGNATURE + b"".join(png_chunk(*chunk) for chunk in chunks)]


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def with_png_checksums(content: bytes) -> bytes:
    """Put the checksum of each chunk right, as far as the chunks can be followed."""
    sealed, at = bytearray(content), len(PNG_SIGNATURE)
    while at + 12 <= len(content):
        (length,) = struct.unpack_from(">I", content, at)
        end = at + 8 + length
        if end + 4 > len(content):
            break
        struct.pack_into(">I", sealed, end, zlib.crc32(content[at + 4 : end]))
        at = end + 4
    return bytes(sealed)


ENTRIES = [
    index_entry(b"images/a.jpg", labels=b"0 0.5 0.5 0.25 0.25\n"),
    index_entry("images/größe.png".encode(), num_labels=-1),
]


def record_seeds() -> list[bytes]:
    image = encoded(".jpg")()[0]
    return [record_file([image, image, index_record(ENTRIES)])]


def with_record_checksums(content: bytes) -> bytes:
    """Put the checksums of header and records right, as far as they can be followed."""
    if len(content) < 12:
        return content
    sealed = bytearray(content)
    (number,) = struct.unpack_from("<q", content, 4)
    if not 0 <= number <= 99 or 12 + 12 * number > len(content):
        return content
    bounds = [*struct.unpack_from(f"<{number}q", content, 12 + 4 * number), len(content)]
    for index, (start, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
        if 0 <= start <= end <= len(content):
            struct.pack_into("<I", sealed, 12 + 4 * index, zlib.crc32(content[start:end]))
    struct.pack_into("<I", sealed, 0, zlib.crc32(sealed[4 : 12 + 12 * number]))
    return bytes(sealed)


def image_reader(suffix: str, tokens: tuple[bytes, ...] = ()) -> Reader:
    return Reader(read_one, encoded(suffix), f"mutant{suffix}", tokens, memory_bytes=DECODED_BYTES)


_IMAGES = {
    "jpeg": image_reader(".jpg", JPEG_TOKENS),
    "checked-image": Reader(
        read_checked, encoded(".jpg"), "mutant.jpg", JPEG_TOKENS, memory_bytes=DECODED_BYTES
    ),
    "png": Reader(
        read_one, animated_png, "mutant.png", PNG_TOKENS, with_png_checksums, DECODED_BYTES
    ),
    "bmp": image_reader(".bmp", (b"BM", b"\x28\x00\x00\x00", b"\x01\x00\x20\x00")),
    "webp": image_reader(".webp", (b"RIFF", b"VP8 ", b"VP8L", b"VP8X", b"ANIM", b"ALPH", b"EXIF")),
    "tiff": image_reader(".tiff", (b"II*\x00", b"MM\x00*", b"\x00\x01\x03\x00\x01\x00\x00\x00")),
    "gif": Reader(read_one, pictures("GIF"), "mutant.gif", (b"GIF89a", b"!\xfe", b"!\xf9", b","),
                  memory_bytes=DECODED_BYTES, seconds=2.0),
    "avif": Reader(read_one, pictures("AVIF"), "mutant.avif",
                   (b"ftyp", b"avif", b"meta", b"iloc", b"ispe", b"irot", b"imir", b"grid"),
                   memory_bytes=DECODED_BYTES, seconds=2.0),
    "heic": Reader(read_one, lambda: [HEIC], "mutant.heic",
                   (b"ftyp", b"heic", b"mif1", b"meta", b"iloc", b"ispe", b"irot", b"clap"),
                   memory_bytes=DECODED_BYTES, seconds=2.0),
    "records": Reader(
        read_records, record_seeds, "mutant.ffr", (b"duet-img", b"\xff\xd8"), with_record_checksums,
        memory_bytes=DECODED_BYTES,
    ),
}  # fmt: skip


XML_TOKENS = (
    b"<", b">", b"</", b"/>", b"<!--", b"-->", b"<![CDATA[", b"]]>", b"<?xml version='1.0'?>",
    b"<!DOCTYPE a [<!ENTITY b 'cccccccccc'>]>", b"&b;", b"&amp;", b"&#0;", b"&#x1F431;", b"<?a?>",
    b"<a>" * 70, b" encoding='utf-16'", b"1e308", b"1e999", b"nan", b"-0", b"-1", b"1_000",
    b"9999999999", b"1", b";", b",",
)  # fmt: skip
VOC_TOKENS = (
    *XML_TOKENS, b"<object>", b"</object>", b"<bndbox>", b"<xmin>", b"<polygon><x1>",
)  # fmt: skip
CVAT_TOKENS = (
    *XML_TOKENS, b'rotation="1e308"', b'width="99999999999"', b"<image ", b"<box ", b"<mask ",
    b"<meta>", b"<label>", b'<track id="0" label="a"/>',
)  # fmt: skip
LABELME_TOKENS = (
    *JSON_TOKENS, b'"shapes":', b'"points":', b'"mask"', b'"circle"', b'"shape_type":',
    b'"group_id": 1', b"[[1,2],[3,4]]", b"1e308", b"\\\\", b"iVBORw0KGgo",
)  # fmt: skip

VOC_SEEDS = [
    b"""<?xml version="1.0"?>
<annotation><folder>f</folder><filename>a.jpg</filename><path>C:\\a.jpg</path>
<source><database>The VOC2007 Database</database></source>
<size><width>64</width><height>48</height><depth>3</depth></size>
<object><name>cat</name><difficult>0</difficult><bndbox><xmin>1</xmin><ymin>2.5</ymin>
<xmax>30</xmax><ymax>48</ymax></bndbox><part><name>tail</name></part></object>
<object><name>dog</name><difficult>1</difficult></object></annotation>
""",
    b"<annotation><object><name>x</name><polygon><x1>1</x1><y1>2</y1><x2>9</x2><y2>3</y2><x3>4</x3>"
    b"<y3>9</y3></polygon><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
    b"</object></annotation>",
]


def labelme_seeds() -> list[bytes]:
    mask = cv2.imencode(".png", np.eye(6, dtype=np.uint8) * 255)[1].tobytes()
    points = {
        "polygon": [[1, 2], [9, 3.5], [4, 9]], "rectangle": [[1, 2], [9, 9]],
        "circle": [[20, 20], [22, 20]], "mask": [[3, 3], [8, 8]], "line": [[1, 1], [2, 2]],
    }  # fmt: skip
    shapes = [
        {"label": "cat", "shape_type": kind, "points": value, "group_id": 1, "flags": {}}
        for kind, value in points.items()
    ]
    shapes[3]["mask"] = base64.b64encode(mask).decode()
    document = {
        "version": "5.5.0", "shapes": shapes, "imagePath": "..\\b.jpg", "imageData": None,
        "imageHeight": 48, "imageWidth": 64,
    }  # fmt: skip
    return [json.dumps(document).encode(), json.dumps({"shapes": shapes[:1]}, indent=1).encode()]


def reader_of(kind: Format) -> Callable[[Path], object]:
    """Return what finds the folder of a file, reads it and uses the objects of its image."""

    def read(path: Path) -> object:
        path.with_suffix(".jpg").touch()
        kind.find(path.parent)
        folder, notes = AnnotatedFolder(kind.name, path.parent, path.parent), FileNotes()
        annotations = collect(kind.read(folder, notes), notes)
        images = annotated_images(annotations, annotations.class_names, path.parent)
        return [image.read_labels(len(annotations.class_names), (48, 64)) for image in images]

    return read


CVAT = """<?xml version="1.0" encoding="utf-8"?>
<annotations><version>1.1</version><meta><task><labels><label><name>cat</name><type>any</type>
<attributes></attributes></label><label><name>dog</name></label></labels></task></meta>
<image id="0" name="a.jpg" subset="Train" width="48" height="32">
<box label="cat" occluded="0" xtl="1.5" ytl="2" xbr="30" ybr="20" rotation="12.5"></box>
<polygon label="dog" points="1,2;30,4;20,31.5"></polygon>
<ellipse label="dog" cx="20" cy="10" rx="9" ry="5" rotation="30"></ellipse>
<mask label="cat" rle="7, 2, 4, 1, 10" left="5" top="3" width="6" height="4"></mask>
<polyline label="cat" points="1,1;2,2"></polyline><tag label="dog"></tag></image>
<image id="1" name="sub/b.jpg" subset="Validation" width="48" height="32"></image>
</annotations>"""

_SIZE = {"original_width": 48, "original_height": 32, "image_rotation": 0}
_VALUES = [
    {"x": 10, "y": 20, "width": 30, "height": 40, "rotation": 15, "rectanglelabels": ["cat"]},
    {"points": [[10, 10], [20, 10], [15, 30]], "polygonlabels": ["dog"]},
    {"x": 50, "y": 50, "radiusX": 10, "radiusY": 20, "rotation": 0, "ellipselabels": ["dog"]},
    {"format": "rle", "rle": [0, 1, 1], "brushlabels": ["dog"]},
]
TASKS = [
    {
        "id": 1,
        "data": {"image": "/data/upload/1/0a1b2c3d-a.jpg"},
        "annotations": [{"result": [{**_SIZE, "id": "r", "value": one} for one in _VALUES]}],
        "predictions": [],
    }
]
TASK_TOKENS = (
    b'"x": ', b'"points": ', b'"value": ', b'"result": ', b'"annotations": ', b'"original_width": ',
    b'"rotation": ', b'"image": ', b'"id": ', b'"rectanglelabels": ', b"?d=", b"%00", b"../",
)  # fmt: skip

OPENIMAGES = b"""\
ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction
a,xclick,/m/0cmf2,1,0.022673031,0.9642005,0.07103825,0.80054647,0,0,0,0
b,xclick,/m/02xwb,1,0.45655376,0.6097202,0.20399113,0.50554323,0,0,1,0
a,xclick,/m/04yx4,1,0.5,0.75,0.25,0.5,0,0,-1,0
"""
CSV_TOKENS = (
    b",",
    b"\n",
    b'"',
    b"\r\n",
    b"a,",
    b"nan",
    b"1e999",
    b"XMin",
    b"ImageID",
    b"\xef\xbb\xbf",
)
DARKNET = b"classes = 2\nnames = data/obj.names\ntrain = data/train.txt\nvalid = obj.data\n"


def read_folder(path: Path) -> object:
    """Read a folder in which the content is the only annotation file, as far as labels."""
    (path.parent / "images").mkdir(exist_ok=True)
    (path.parent / "images" / "a.jpg").touch()
    recognise(path.parent, ())
    labels = []
    for splits in (kind.find(path.parent) for kind in formats()):
        for folder in (part for parts in splits.values() for part in parts):
            annotations = read_annotations(folder)
            for image in annotated_images(annotations, annotations.class_names, path):
                try:
                    labels.append(image.read_labels(len(annotations.class_names), (32, 48)))
                except BrokenLabelError as error:
                    labels.append(str(error))
    if not labels:
        raise UserError("nothing is recognised")
    return labels


def read_names(path: Path) -> object:
    """Read class names of OpenImages beside rows that need them."""
    (path.parent / "train-annotations-bbox.csv").write_bytes(OPENIMAGES)
    return read_folder(path)


def read_yolo(path: Path) -> object:
    """Read a folder whose class names, or settings, are the content."""
    (path.parent / "a.jpg").touch()
    (path.parent / "obj.names").write_text("cat\ndog\n")
    (path.parent / "train.txt").write_text("data/a.jpg\n")
    return recognise(path.parent, ())


_PLAIN = {
    "voc-annotations": Reader(reader_of(VOC), lambda: VOC_SEEDS, "a.xml", VOC_TOKENS),
    # A mask may have many more pixels than bytes.
    "labelme-annotations": Reader(
        reader_of(LABELME), labelme_seeds, "a.json", LABELME_TOKENS, memory_bytes=1024 * MIB
    ),
    "cvat": Reader(read_folder, lambda: [CVAT.encode()], "annotations.xml", CVAT_TOKENS),
    "label-studio": Reader(
        read_folder,
        lambda: [json.dumps(TASKS).encode()],
        "tasks.json",
        (*JSON_TOKENS, *TASK_TOKENS),
    ),
    "openimages": Reader(
        read_folder, lambda: [OPENIMAGES], "train-annotations-bbox.csv", CSV_TOKENS
    ),
    "openimages-names": Reader(
        read_names,
        lambda: [b"LabelName,DisplayName\n/m/0cmf2,Airplane\n/m/02xwb,Fruit\n"],
        "class-descriptions-boxable.csv",
        CSV_TOKENS,
    ),
    "annotated-list": Reader(
        lambda path: listed_in(path, path.parent)(Path("a.jpg")),
        lambda: [b"images/a.jpg\nb\n"],
        "list.txt",
    ),
    "class-names": Reader(read_yolo, lambda: [b"cat\ndog\n\n", b"cat"], "classes.txt"),
    "darknet": Reader(
        read_yolo, lambda: [DARKNET], "obj.data", (b" = ", b"names", b"train", b"../", b"valid = ")
    ),
}

READERS = _IMAGES | {name: replace(reader, seal=as_text) for name, reader in _PLAIN.items()}
