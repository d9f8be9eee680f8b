"""The built site in a browser: pages without faults on a phone, and a search that finds."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import Page, chromium

PHONE, DESKTOP = 390, 1280
OTHERS = ("404.html",)  # made by the theme
SWITCH = re.compile(r'duet-switch" href="([^"]+)"')
WIDTH = "document.documentElement.scrollWidth"
TRIES, STEP = 200, 25  # of waiting in the page; milliseconds
BROKEN = """[...document.images].filter(image => !image.loading && image.complete &&
    !image.naturalWidth).map(image => image.src)"""
SEARCH = """(() => {{
    const query = document.querySelector("input.md-search__input");
    query.focus();
    query.value = {0!r};
    query.dispatchEvent(new Event("input", {{bubbles: true}}));
    query.dispatchEvent(new KeyboardEvent("keyup", {{bubbles: true}}));
}})()"""
LIST = 'document.querySelector(".md-search-result__list")'
FOUND = """(items => items.length && items.map(item => item.href))(
    [...document.querySelectorAll(".md-search-result__link")])"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as opened:
        yield opened


def names(site: Path) -> list[str]:
    """The pages of both languages, below the site's folder."""
    found = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html"))]
    return [name for name in found if name not in OTHERS]


def wait_for(page: Page, expression: str) -> Any:
    """The value of a JavaScript expression once it is true; False if it never is."""
    waiting = f"""(async () => {{
        for (let i = 0; i < {TRIES}; i++) {{
            const value = {expression};
            if (value) return value;
            await new Promise(done => setTimeout(done, {STEP}));
        }}
        return false;
    }})()"""
    answer = page.call(
        "Runtime.evaluate", expression=waiting, awaitPromise=True, returnByValue=True
    )
    assert "exceptionDetails" not in answer, answer
    return answer["result"]["value"]


def faults(page: Page, root: str) -> list[str]:
    """Errors since the page was opened, and requests to anywhere but the site."""
    inside = (root, "data:", "about:", "blob:")
    outside = [url for url in page.requested() if not url.startswith(inside)]
    thrown = [
        event["params"]["exceptionDetails"]["text"]
        for event in page.events
        if event.get("method") == "Runtime.exceptionThrown"
    ]
    return [*outside, *thrown, *page.complaints()]


def test_pages_have_no_fault_and_fit_a_phone(page, site):
    problems = {}
    for name in names(site):
        page.open(site / name, PHONE)
        found = [*page.evaluate(BROKEN), *faults(page, site.as_uri())]
        if not wait_for(page, f"{WIDTH} <= innerWidth"):
            found.append(f"{page.evaluate(WIDTH)} px wide on {PHONE} px")
        if found:
            problems[name] = found
    assert problems == {}


def test_language_switch_leads_to_the_same_page(site):
    for name in names(site):
        (link,) = SWITCH.findall((site / name).read_text(encoding="utf-8"))
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link))
        assert target == (name.removeprefix("zh/") if name.startswith("zh/") else f"zh/{name}")
        assert (site / target).is_file()


# What people ask in English and in Chinese, and the page, or the row of a flag, that comes first.
QUESTIONS = [
    ("--freeze", "--freeze", "train-flags.html#freeze"),
    ("--cache", "--cache", "train-flags.html#cache"),
    ("--img", "--img", "train-flags.html#img"),
    ("--resume", "--resume", "train-flags.html#resume"),
    ("--multi-scale", "--multi-scale", "train-flags.html#multi-scale"),
    ("--bbox_iou_optim", "--bbox_iou_optim", "train-flags.html#bbox_iou_optim"),
    ("--int8", "--int8", "export-flags.html#int8"),
    ("--port", "--port", "serve-flags.html#port"),
    ("resume", "断点续训", "resume.html"),
    ("cache", "缓存", "tutorials/12-speed.html"),
    ("pretrained", "预训练", "tutorials/10-weights.html"),
    ("freeze", "冻结", "tutorials/10-weights.html"),
    ("install", "安装", "install.html"),
    ("train", "训练", "tutorials/03-quick-start.html"),
    ("detect", "检测", "detect.html"),
    ("export", "导出", "export.html"),
    ("serve", "部署服务", "serve.html"),
    ("dataset", "数据集", "data.html"),
    ("labels", "标注", "tutorials/02-data.html"),
    ("augmentation", "数据增强", "augmentation.html"),
    ("mosaic", "马赛克", "augmentation.html"),
    ("hyper-parameters", "超参数", "hyperparameters.html"),
    ("segmentation", "实例分割", "segment.html"),
    ("classification", "图像分类", "classify.html"),
    ("anchor-free", "无锚框", "anchor-free.html"),
    ("mAP", "mAP", "tutorials/08-map.html"),
    ("tiles", "切片", "tutorials/09-more-views.html"),
    ("several machines", "多机训练", "multi-node.html"),
    ("flags of train.py", "train.py 的参数", "train-flags.html"),
    ("moving from yolov5", "从 YOLOv5 迁移", "moving-from-yolov5.html"),
]


@pytest.mark.parametrize(("language", "folder"), [(0, ""), (1, "zh/")])
def test_search_finds_the_intended_page_first(page, site, language, folder):
    root = f"{site.as_uri()}/{folder}"
    page.open(f"{root}index.html", DESKTOP)
    page.evaluate(SEARCH.format("duet"))
    assert wait_for(page, FOUND), page.complaints()
    wrong = {}
    for question in QUESTIONS:
        page.evaluate(f"{LIST}.replaceChildren()")
        page.evaluate(SEARCH.format(question[language]))
        links = [link for link in wait_for(page, FOUND) or [] if link.startswith(root)]
        # The page comes first, its sections follow.
        found = [re.sub(r"\?[^#]*", "", link.removeprefix(root)) for link in links][:2]
        if found[-1 if "#" in question[2] else 0] != question[2]:
            wrong[question[language]] = found
    assert wrong == {}
    assert faults(page, site.as_uri()) == []
