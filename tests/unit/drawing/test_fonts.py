"""`fonts.py`: every name is drawn, or its number with a word about it; no file stops the search."""

import logging
import os
import shutil

import pytest
from fontTools.ttLib import TTCollection

from tests.unit.drawing.stand_in_fonts import DEJAVU, forget_fonts, make_font, use_folders
from utils.drawing.fonts import (
    drawable_name,
    font_folders,
    read_font,
    sized,
    sorted_fonts,
    system_fonts,
    with_font,
)


@pytest.fixture(autouse=True)
def kept_fonts():
    yield
    forget_fonts()


@pytest.fixture
def dejavu_alone(tmp_path, monkeypatch):
    shutil.copy(DEJAVU, tmp_path)
    use_folders(monkeypatch, tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["person", "Fußgänger", "автомобиль", "Ελλάδα", "a 'b' $c$"])
def test_latin_greek_and_cyrillic_names_are_drawn_with_no_font_installed(dejavu_alone, name):
    assert drawable_name(name, 3) == name


def test_names_that_no_font_has_become_numbers_with_one_line_that_says_what_helps(
    dejavu_alone, caplog
):
    caplog.set_level(logging.INFO)
    names = ["红细胞", "자전거", "白血球 (large)", "हाथी"]
    assert [drawable_name(name, index) for index, name in enumerate(names)] == [
        "class 0", "class 1", "class 2", "class 3",
    ]  # fmt: skip
    with_font("红细胞")
    assert len(caplog.records) == 1
    assert "红" in caplog.text and "fonts-noto-cjk" in caplog.text


def test_the_line_names_another_package_for_another_script(dejavu_alone, caplog):
    assert drawable_name("हाथी", 0) == "class 0"
    assert "fonts-noto-core" in caplog.text


def test_a_character_that_no_font_has_is_spelt_out(dejavu_alone):
    font, text = with_font("红a")
    assert text == r"\u7ea2a"
    assert font.path == dejavu_alone / DEJAVU.name


@pytest.mark.parametrize(
    ("word", "drawn"), [("\x1b[31m", r"\x1b[31m"), ("a\nb", r"a\nb"), ("\u202eab", r"\u202eab"),
                        ("e\u0301", "é"), ("\udce9", r"\xe9")]
)  # fmt: skip
def test_a_word_is_drawn_as_it_would_be_printed(dejavu_alone, word, drawn):
    assert with_font(word)[1] == drawn


def test_a_font_in_a_folder_below_is_found_for_the_characters_it_has(dejavu_alone):
    (dejavu_alone / "more" / "deep").mkdir(parents=True)
    path = dejavu_alone / "more" / "deep" / "some.TTF"
    make_font("红细胞").save(path)
    assert drawable_name("红细胞 person", 0) == "红细胞 person"
    assert with_font("红细胞")[0].path == path
    assert with_font("person")[0].path == dejavu_alone / DEJAVU.name
    assert drawable_name("红白", 5) == "class 5"


def test_of_a_collection_the_face_for_simplified_chinese_is_used(tmp_path):
    collection = TTCollection()
    collection.fonts = [make_font("红", f"Stand-in {language}") for language in ("JP", "KR", "SC")]
    collection.save(tmp_path / "some.ttc")
    font = read_font(tmp_path / "some.ttc")
    assert sized(font, 20).getname()[0] == "Stand-in SC"


def test_without_any_font_pillow_brings_one_for_ascii(tmp_path, monkeypatch):
    use_folders(monkeypatch, tmp_path, tmp_path / "absent")
    assert drawable_name("person", 0) == "person"
    assert drawable_name("Fußgänger", 1) == "class 1"
    assert sized(with_font("person")[0], 20).getlength("person") > 20


def test_files_that_are_no_fonts_are_passed_by(dejavu_alone):
    content = DEJAVU.read_bytes()
    damaged = {
        "a.ttf": b"", "b.otf": b"no font", "c.ttc": b"ttcf" + bytes(40), "d.ttf": content[:5000],
        "e.ttf": content[:12] + bytes(len(content) - 12), "f.ttc": b"ttcf" + content[4:],
    }  # fmt: skip
    for name, data in damaged.items():
        (dejavu_alone / name).write_bytes(data)
    os.mkfifo(dejavu_alone / "g.ttf")
    (dejavu_alone / "h.ttf").mkdir()
    (dejavu_alone / "i.ttf").symlink_to(dejavu_alone / "absent")
    (dejavu_alone / "j.ttf").symlink_to("/dev/zero")
    with open(dejavu_alone / "k.ttf", "wb") as file:
        file.truncate(1 << 40)  # a file of holes
    assert drawable_name("红细胞", 0) == "class 0"
    assert drawable_name("person", 0) == "person"


def test_plain_fonts_come_before_others_and_fonts_of_blanks_not_at_all(tmp_path):
    for name in ("Z.ttf", "A-Bold.ttf", "DejaVuSans.ttf", "wqy-zenhei.ttc", "LastResort.otf", "x"):
        (tmp_path / name).touch()
    names = [path.name for path in sorted_fonts([tmp_path])]
    assert names == ["DejaVuSans.ttf", "wqy-zenhei.ttc", "Z.ttf", "A-Bold.ttf"]


def test_fonts_of_a_person_and_of_the_system_are_looked_for(monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", "/home/me/data")
    monkeypatch.setenv("XDG_DATA_DIRS", "/one:/two")
    folders = [str(folder) for folder in font_folders()]
    assert folders[0] == str(DEJAVU.parent)
    assert folders[1:4] == ["/home/me/data/fonts", "/one/fonts", "/two/fonts"]


def test_a_font_is_read_when_those_before_it_lack_a_character(dejavu_alone, monkeypatch):
    read = []
    monkeypatch.setattr(
        "utils.drawing.fonts.read_font", lambda path: read.append(path.name) or read_font(path)
    )
    make_font("红").save(dejavu_alone / "some.ttf")
    system_fonts().font_for("person")
    assert read == [DEJAVU.name]
    for _ in range(2):
        system_fonts().font_for("红")
    assert read == [DEJAVU.name, "some.ttf"]
