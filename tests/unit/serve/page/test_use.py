"""The page by pointer, by keyboard and by screen reader, at any width, light and dark."""

import pytest

from tests.browser.accessibility import violations
from tests.serve_answers import MODELS


def current(page):
    """The numbers of the detections that are marked: in the list, and over the image."""
    return page.evaluate(
        "['#list', '#boxes'].map((place) => [...document.querySelectorAll("
        "`${place} [data-index].current`)].map((each) => Number(each.dataset.index)))"
    )


def test_a_box_and_its_line_in_the_list_are_marked_together(page, image):
    page.choose(image)
    for place in ("#list", "#boxes"):
        for kind, marked in (("pointerenter", [2]), ("pointerleave", [])):
            page.evaluate(
                f"document.querySelector('{place} [data-index=\"2\"]')"
                f".dispatchEvent(new PointerEvent('{kind}'))"
            )
            assert current(page) == [marked, marked]


def focused(page):
    return page.evaluate(
        "[document.activeElement.closest('#list, #boxes')?.id, "
        "Number(document.activeElement.dataset.index)]"
    )


@pytest.mark.parametrize("place", ["list", "boxes"])
def test_arrow_keys_walk_through_what_is_found(page, image, place):
    page.choose(image)
    page.evaluate(f"document.querySelector('#{place} [tabindex=\"0\"]').focus()")
    for key, code, index in (("ArrowDown", 40, 1), ("ArrowRight", 39, 2), ("ArrowUp", 38, 1),
                             ("End", 35, 3), ("ArrowDown", 40, 3), ("Home", 36, 0)):  # fmt: skip
        page.press(key, code)
        assert focused(page) == [place, index] and current(page) == [[index]] * 2
    reach = f"document.querySelectorAll('#{place} [tabindex=\"0\"]').length"
    assert page.evaluate(reach) == 1  # one stop of the tab key


def test_all_controls_are_reached_by_the_tab_key(page, image):
    page.choose(image)
    page.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(14):
        page.press("Tab", 9)
        name = page.evaluate(
            "(document.activeElement.closest('#boxes, #classes, #list') || "
            "document.activeElement).id"
        )
        reached += [name] if name not in reached[-1:] else []
    assert reached[:10] == [
        "file", "camera", "boxes", "confidence", "overlap", "agnostic", "classes", "list", "copy",
        "download",
    ]  # fmt: skip


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_and_nobody_is_kept_from_it(page, site, image, width, dark):
    site.models = MODELS
    page.open(width, dark)
    assert violations(page.page) == []
    page.choose(image)
    page.evaluate("document.querySelector('#list button').focus()")
    assert violations(page.page) == []
    assert page.evaluate("document.scrollingElement.scrollWidth") == width
    beyond = page.evaluate(
        "[...document.querySelectorAll('body *')].filter((each) => "
        "each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.outerHTML)"
    )
    assert beyond == []
    site.token = "x"
    page.open(width, dark)
    page.until("document.querySelector('dialog').open")
    assert violations(page.page) == []
    origins = {"/".join(url.split("/")[:3]) for url in page.page.requested()}
    assert origins - {"data:,"} == {site.root}


def test_what_is_found_is_said_to_screen_readers(page, image):
    page.choose(image)
    assert page.evaluate("[said.role, problem.role]") == ["status", "alert"]
    tree = page.page.call("Accessibility.getFullAXTree")["nodes"]
    names = [(node["role"]["value"], node["name"]["value"]) for node in tree if "name" in node]
    for expected in (
        ("button", "person 0.90"), ("slider", "Score above"), ("slider", "Overlap (IoU) up to"),
        ("checkbox", "bus 1"), ("button", "Copy as JSON"),
        ("image", "image.png, 200 × 200 pixels"),
    ):  # fmt: skip
        assert expected in names, names


def test_a_page_without_room_draws_nothing_wrong_and_keeps_the_focus(page, image):
    page.choose(image)
    page.evaluate("document.querySelector('.box[data-index=\"1\"]').focus()")
    for display in ("none", ""):
        page.evaluate(f"document.querySelector('main').style.display = '{display}'")
        page.set("overlap", 0.5)
    page.evaluate("document.querySelector('.box[data-index=\"1\"]').focus()")
    page.evaluate("document.querySelector('#stage').style.width = '300px'")
    page.until("document.querySelector('#view').getBoundingClientRect().width < 300")
    assert focused(page) == ["boxes", 1]
    assert page.page.complaints() == []
