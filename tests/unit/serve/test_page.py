"""The page of a server in a browser: what it sends, shows and says, for everybody."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from duet.utils.colours import class_colour
from tests.browser.chromium import Page, chromium, violations
from tests.small import noise
from tests.unit.serve.conftest import DETECT, HOSTILE, TOKENS


@pytest.fixture(scope="module")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser, server):
    page = ServePage(browser, server.root)
    page.until("model.textContent")
    return page


@pytest.fixture
def image(tmp_path):
    cv2.imwrite(str(tmp_path / "image.png"), noise(70, 96))
    return tmp_path / "image.png"


def served_detections(server, image, query):
    return server.ask(f"{DETECT}?{query}", image.read_bytes()).json["detections"]


def assert_same(shown, expected):
    """Equal, to the rounding that a lower threshold may change."""
    assert [found["name"] for found in shown] == [found["name"] for found in expected]
    for name in ("box_xyxy", "score"):
        values = [[found[name] for found in side] for side in (shown, expected)]
        assert np.allclose(*values, rtol=1e-6)


def use_model(page, name):
    page.evaluate(
        "(() => { const select = document.querySelector('select'); "
        f"select.value = {name!r}; select.dispatchEvent(new Event('change')); }})()"
    )


def test_page_boxes_equal_the_servers_at_any_threshold(page, server, image):
    assert page.choose(image)[0].isdigit()
    numbers = []
    for conf, iou in ((0.25, 0.45), (0.02, 0.45), (0.02, 0.2), (0.3, 0.6), (0.1, 1.0)):
        page.set("confidence", conf)
        page.set("overlap", iou)
        expected = served_detections(server, image, f"conf={conf}&iou={iou}")
        assert_same(page.copied()["detections"], expected)
        rows = [f"{found['name']}{found['score']:.2f}" for found in expected]
        assert page.texts("#list .name, #list .score") == [
            text for row in rows for text in (row[:-4], row[-4:])
        ]
        assert len(page.texts(".box")) == len(expected)
        numbers.append(len(expected))
    assert min(numbers) > 0 and len(set(numbers)) > 3
    page.set("agnostic", True)
    expected = served_detections(server, image, "conf=0.1&iou=1&agnostic=true")
    assert_same(page.copied()["detections"], expected)
    assert page.page.complaints() == []


def test_page_draws_boxes_at_their_places(page, server, image):
    page.choose(image)
    drawn = page.evaluate(
        "(() => { const view = document.querySelector('#image').getBoundingClientRect(); "
        "return [...document.querySelectorAll('.box')].sort((a, b) => a.dataset.index - "
        "b.dataset.index).map((box) => { const { left, top, right, bottom } = "
        "box.querySelector('.line').getBoundingClientRect(); "
        "return [(left - view.left) / view.width, (top - view.top) / view.height, "
        "(right - view.left) / view.width, (bottom - view.top) / view.height]; }); })()"
    )
    expected = [found["box_xyxy"] for found in served_detections(server, image, "")]
    assert np.allclose(drawn, np.array(expected) / (96, 70, 96, 70), atol=0.03)  # lines are wide


def test_page_labels_boxes_in_class_colours_at_full_size(page, image):
    page.choose(image)
    page.set("confidence", 0.02)
    found = page.copied()["detections"]
    assert len(found) > 1
    assert page.evaluate("document.querySelectorAll('.label:not(.spare)').length") == min(
        len(found), 60
    )
    drawn = page.evaluate(
        "[...document.querySelectorAll('.box')].map((box) => [Number(box.dataset.index), "
        "box.style.getPropertyValue('--colour')])"
    )
    wanted = {n: "#{:02x}{:02x}{:02x}".format(*class_colour(one["class_index"]))
              for n, one in enumerate(found)}  # fmt: skip
    assert dict(drawn) == wanted
    used, frame = page.evaluate("[image.clientWidth / stage.clientWidth, "
                                "image.clientHeight / (0.78 * innerHeight)]")  # fmt: skip
    assert max(used, frame) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("how", ["drop", "paste"])
def test_file_may_be_dropped_or_pasted(page, image, how):
    assert page.give(image, how)[0].isdigit()


def test_masks_have_outlines_and_classes_have_no_thresholds(page, image):
    use_model(page, "masks")
    page.choose(image)
    outlines = [found["outline"] for found in page.copied()["detections"]]
    drawn = page.evaluate("document.querySelectorAll('.box polygon').length")
    assert drawn == sum(map(bool, outlines)) > 0  # of small objects no mask may be left
    use_model(page, "kinds")
    page.until("thresholds.hidden && document.querySelectorAll('.probability').length")
    assert page.until("said.textContent.includes('with a probability of') && said.textContent")
    assert len(page.texts(".probability")) == len(page.copied()["classes"]) > 0


def test_hostile_class_name_stays_text(page, image):
    use_model(page, "masks")
    page.choose(image)
    page.set("confidence", 0.1)
    assert HOSTILE in page.texts("#list .name") and HOSTILE in page.texts("#classes .name")
    assert page.evaluate("document.querySelectorAll('img').length") == 1
    assert page.evaluate("document.title") == "Duet: try the model"


@pytest.mark.parametrize("suffix", ["jpg", "tiff"])
def test_rotated_and_unusual_images_are_shown(page, tmp_path, suffix):
    exif, path = Image.Exif(), tmp_path / f"image.{suffix}"
    exif[0x0112] = 6
    Image.fromarray(noise(60, 100)).save(path, exif=exif)
    page.choose(path)
    assert page.evaluate("[image.naturalWidth, image.naturalHeight]") == [60, 100]


def test_error_is_shown_and_old_boxes_are_removed(page, image, tmp_path):
    (tmp_path / "text.txt").write_text("text")
    page.choose(image)
    assert "not an image" in page.choose(tmp_path / "text.txt")
    assert page.texts(".box") == page.texts("#list li") == []
    assert page.evaluate("copy.disabled && download.disabled")
    page.evaluate("camera.click()")
    assert page.until("problem.textContent").startswith("The camera cannot be used")


def test_downloaded_image_is_drawn_by_the_server(page, image):
    page.choose(image)
    page.evaluate("document.querySelector('#classes input').click()")
    page.evaluate("download.click()")
    page.until("said.textContent.startsWith('The image was saved')")
    assert "classes=" in page.page.requested()[-2] + page.page.requested()[-1]


def test_box_and_list_entry_are_highlighted_together(page, image):
    page.choose(image)
    marked = (
        "['#list', '#boxes'].map((place) => [...document.querySelectorAll(`${place} "
        ".box.current, ${place} button.current`)].map((each) => Number(each.dataset.index)))"
    )
    for place in ("#list", "#boxes"):
        for kind, expected in (("pointerenter", [1]), ("pointerleave", [])):
            target = f"document.querySelector('{place} [data-index=\"1\"]')"
            event = f"{target}.dispatchEvent(new PointerEvent('{kind}'))"
            assert page.evaluate(f"({event}, {marked})") == [expected, expected]
    page.evaluate("document.querySelector('#list button').focus()")
    for key, code, index in (("ArrowDown", 40, 1), ("ArrowUp", 38, 0)):
        for kind in ("keyDown", "keyUp"):
            page.page.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code)
        assert page.evaluate(marked) == [[index], [index]]


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_page_fits_and_is_accessible(browser, server, image, width, dark):
    page = ServePage(browser, server.root, width, dark)
    assert violations(page.page) == []
    page.choose(image)
    assert violations(page.page) == []
    assert page.evaluate("document.scrollingElement.scrollWidth") == width
    assert page.evaluate("[said.role, problem.role]") == ["status", "alert"]
    origins = {"/".join(url.split("/")[:3]) for url in page.page.requested()}
    assert {one for one in origins if not one.startswith(("data:", "blob:"))} == {server.root}


def test_token_is_requested_and_kept_only_in_memory(browser, guarded, image):
    page = ServePage(browser, guarded.root)
    for word, words in (("wrong", "A token is needed"), (TOKENS[0], "does not know this token")):
        page.until(f"document.querySelector('dialog[open]')?.textContent.includes('{words}')")
        assert violations(page.page) == []
        page.evaluate(f"token.value = '{word}'; document.querySelector('[value=use]').click()")
    page.until("model.textContent")
    assert page.choose(image)[0].isdigit()
    kept = "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location])"
    assert TOKENS[0] not in page.evaluate(f"{kept} + document.documentElement.outerHTML")
    page.page.open(f"{guarded.root}/", 1280)
    page.until("document.querySelector('dialog').open")
    page.evaluate("document.querySelector('dialog [value=\"\"]').click()")
    assert page.until("problem.textContent").startswith("This server needs a token.")


SECONDS = 60  # a limit against hanging
# The clipboard of a browser without a window is none; what is copied is kept on the page.
CLIPBOARD = """Object.defineProperty(navigator, "clipboard",
  { value: { writeText: async (text) => { window.copied = text; } } });"""
DROP = """(() => {
  const data = new DataTransfer();
  data.items.add(new File([Uint8Array.from(atob(%s), (c) => c.charCodeAt(0))], %s));
  const init = { bubbles: true, cancelable: true, %s: data };
  document.body.dispatchEvent(new %s("%s", init));
})()"""


class ServePage:
    """A browser at the page of a server."""

    def __init__(self, page: Page, root: str, width: int = 1280, dark: bool = False) -> None:
        self.page = page
        page.open(f"{root}/", width, dark=dark)
        self.evaluate = page.evaluate
        page.evaluate(CLIPBOARD)

    def until(self, expression: str) -> Any:
        """Wait for an expression to be true; return its value."""
        deadline = time.monotonic() + SECONDS
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, (expression, self.page.complaints())
            time.sleep(0.01)
        return value

    def choose(self, path: Path) -> str:
        """Choose a file; return what the page says, or complains of, once it is done."""
        self.evaluate("said.textContent = ''")
        self.page.choose_file("#file", path)
        return self.done()

    def done(self) -> str:
        return self.until(
            "problem.textContent || (said.classList.contains('busy') ? '' : said.textContent)"
        )

    def give(self, path: Path, how: str) -> str:
        """Drop a file on the page, or paste it; as `choose`."""
        kind, field = {"drop": ("DragEvent", "dataTransfer"),
                       "paste": ("ClipboardEvent", "clipboardData")}[how]  # fmt: skip
        content = json.dumps(base64.b64encode(path.read_bytes()).decode())
        self.evaluate("said.textContent = ''")
        self.evaluate(DROP % (content, json.dumps(path.name), field, kind, how))
        return self.done()

    def set(self, name: str, value: float | bool) -> str:
        """Move a slider, or set a checkbox; as `choose`."""
        field = "checked" if isinstance(value, bool) else "value"
        self.evaluate(
            f"said.textContent = ''; {name}.{field} = {json.dumps(value)};"
            f"for (const kind of ['input', 'change']) {name}.dispatchEvent(new Event(kind))"
        )
        return self.done()

    def copied(self) -> dict[str, Any]:
        """What "Copy as JSON" copies."""
        self.evaluate("window.copied = ''; document.querySelector('#copy').click()")
        return json.loads(self.until("window.copied"))

    def texts(self, selector: str) -> list[str]:
        return self.evaluate(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)"
        )
