"""utils/files/xml_files.py: XML becomes standard library elements, within bounds, or one error."""

import io
import time
from xml.etree import ElementTree

import pytest

from duet.utils.files.xml_files import MAX_DEPTH, read_xml, stream_xml

ENTITIES = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12))
BOMB = f'<!DOCTYPE l [<!ENTITY a0 "{"x" * 1000}">{ENTITIES}]><l>&a11;</l>'.encode()

HOSTILE = {
    "nothing": (b"", "line 1: invalid XML: no element found"),
    "another end": (b"<a>\n</b>", "line 2: invalid XML: mismatched tag"),
    "an entity of its own": (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "DOCTYPE"),
    "entities of entities": (BOMB, "DOCTYPE"),
    "an unknown entity": (b"<a>&b;</a>", "undefined entity"),
    "too deep": (b"<a>" * 1_000_000, "nested deeper than 64"),
} | {
    f"the encoding {name}": (f'<?xml version="1.0" encoding="{name}"?><a/>'.encode(), "encoding")
    for name in ("gbk", "zip", "punycode", "undefined", "utf-7", "unknown", "x" * 10_000)
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_xml_beyond_the_limits_is_one_short_error_at_once(tmp_path, kind):
    content, message = HOSTILE[kind]
    (tmp_path / "a.xml").write_bytes(content)
    start = time.process_time()
    with pytest.raises(ValueError, match=message) as caught:
        read_xml(tmp_path / "a.xml", 1 << 25)
    assert len(str(caught.value)) < 300 and str(caught.value).isprintable()
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "content",
    [
        b"<a/>",
        b'<?xml version="1.0"?>\n<!-- b --><a b="1" c="&lt;&#65;"> d <e>f</e> g <e/></a>',
        b"\xef\xbb\xbf<a>&amp;<![CDATA[<b>]]>c</a>",
        '<?xml version="1.0" encoding="utf-16"?><a>标签</a>'.encode("utf-16"),
        '<?xml version="1.0" encoding="windows-1252"?><a>€</a>'.encode("cp1252"),
        '<?xml version="1.0" encoding="ISO-8859-15"?><a>€</a>'.encode("iso-8859-15"),
        b"<a>" + b"x" * (1 << 23) + b"</a>",
        b"<a>" * MAX_DEPTH + b"</a>" * MAX_DEPTH,
    ],
)
def test_other_xml_is_what_the_standard_library_makes_of_it(tmp_path, content):
    path = tmp_path / "a.xml"
    path.write_bytes(content)
    expected = ElementTree.tostring(ElementTree.fromstring(content))
    assert ElementTree.tostring(read_xml(path)) == expected


def test_a_stream_yields_the_outer_elements_of_the_names():
    content = b"""<a><meta><label><name>cat</name></label></meta>
        <image id="0"/> text <image id="1"><box/><image id="2"/></image>
        <other><image id="3"/></other></a>"""
    found = list(stream_xml(io.BytesIO(content), {"image", "label"}))
    assert [(element.tag, element.get("id")) for element in found] == [
        ("label", None), ("image", "0"), ("image", "1"), ("image", "3"),
    ]  # fmt: skip
    assert found[0].findtext("name") == "cat" and [part.tag for part in found[2]] == [
        "box",
        "image",
    ]
