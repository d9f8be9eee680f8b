"""audit.html as a browser shows it: crops of each kind, what to do, and how many there are."""

import numpy as np
import pytest

from tests.browser.chromium import chromium
from tests.unit.data.audit.small_audit import small_audit
from utils.data.audit import page as page_module
from utils.data.audit.findings import KINDS
from utils.data.audit.page import audit_page

LINES = (
    "[...document.querySelectorAll('#{} .crop rect.line')].map(x => x.classList.contains('dashed'))"
)


def repeated(audit, number):
    """An audit with the first finding so many times."""
    return audit._replace(findings=audit.findings.take(np.zeros(number, np.int64)))


def test_a_browser_shows_each_kind_with_its_boxes_and_asks_for_nothing(tmp_path):
    file = tmp_path / "audit.html"
    file.write_text(audit_page(small_audit(tmp_path), top=8), encoding="utf-8")
    with chromium() as page:
        for width in (1100, 390):
            for dark in (False, True):
                page.open(file, width, dark=dark)
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                assert page.complaints() == []
                assert [url for url in page.requested() if not url.startswith("data:")] == [
                    file.resolve().as_uri()
                ]
        solid, dashed = False, True
        lines = {kind: sorted(page.evaluate(LINES.format(kind))) for kind in KINDS}
        assert lines == {
            "overlooked": [solid], "unseen": [dashed], "swapped": [solid, dashed],
            "misplaced": [solid, dashed],
        }  # fmt: skip
        text = page.evaluate("document.body.innerText")
    for words in (
        "cat: add it?", "score 0.75", "<i>ü.png", 'cat, or <b>dog\\x1b[2J, "x"?', "mAP50 0.500",
        "Of 4 labels on 2 images, 4 findings on 2 images are worth looking at.",
    ):  # fmt: skip
        assert words in text


def test_the_first_findings_of_a_kind_are_shown_and_the_others_counted(tmp_path):
    text = audit_page(repeated(small_audit(tmp_path), 5), top=3)
    assert text.count('<figure class="crop">') == 3
    assert "2 more of this kind: see audit.csv" in text
    assert "5 findings on 1 image are worth looking at" in text


def test_classes_that_are_swapped_more_than_once_are_counted(tmp_path):
    audit = small_audit(tmp_path)
    swapped = np.array([2, 2, 2])
    text = audit_page(audit._replace(findings=audit.findings.take(swapped)), top=1)
    assert "Seen most often: cat as &lt;b&gt;dog\\x1b[2J, &quot;x&quot; (3)." in text
    assert "Seen most often" not in audit_page(audit, top=1)


def test_the_page_says_that_a_model_may_have_learned_the_mistakes_of_train(tmp_path):
    audit = small_audit(tmp_path)
    words = "it has learned some of their mistakes"
    assert words in audit_page(audit._replace(split="train"), top=1)
    assert words not in audit_page(audit, top=1)


def test_a_full_page_reads_no_more_images(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(page_module, "MAX_BYTES", 60_000)  # a crop takes about 10,000
    plain = page_module.decode
    monkeypatch.setattr(page_module, "decode", lambda sample: read.append(sample) or plain(sample))
    text = audit_page(repeated(small_audit(tmp_path), 1000), top=1000)
    assert 1 <= text.count('<figure class="crop">') == len(read) - 1 < 20
    assert len(text) < 80_000


def test_an_image_that_is_gone_is_told_and_the_others_are_shown(tmp_path):
    audit = small_audit(tmp_path)
    audit.samples[0].image_path.unlink()
    text = audit_page(audit, top=8)
    assert text.count('<figure class="crop">') == 4
    assert text.count('<div class="none">') == 2


@pytest.mark.parametrize("number", [0, 1])
def test_the_page_ends_with_how_many_findings_there_are(tmp_path, number):
    text = audit_page(repeated(small_audit(tmp_path), number), top=8)
    ending = text[text.index("How many are worth looking at") :]
    words = ("the model doubts none", "1 finding on 1 image is worth looking at")
    assert words[number] in ending
