"""tests/browser/chromium.py finds a page's faults, and nothing in a page without one."""

import pytest

from tests.browser.chromium import chromium, violations

PAGE = """<!DOCTYPE html><html lang="en"><head><title>A page</title></head>
<body><main><h1>A page</h1>{}</main></body></html>"""


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('<p style="color: #000">Text.</p>', set()),
        ('<p style="color: #ddd; background: #fff">Pale.</p><img src="data:,">',
            {("image-alt", "critical"), ("color-contrast", "serious")}),
    ],
)  # fmt: skip
def test_accessibility_check_finds_faults(tmp_path, content, found):
    (tmp_path / "page.html").write_text(PAGE.format(content))
    with chromium() as page:
        page.open(tmp_path / "page.html", 600)
        assert {(fault["id"], fault["impact"]) for fault in violations(page)} == found
        left = {fault["id"] for fault in violations(page, without=["image-alt"])}
        assert left == {name for name, _ in found} - {"image-alt"}
