"""What a browser may do on the page of a server."""

import base64
import hashlib

from utils.serve.page import PAGE, read_page


def test_the_page_runs_its_own_script_and_style_and_nothing_else():
    page = read_page()
    policy = dict(
        part.split(" ", 1) for part in page.headers["Content-Security-Policy"].split("; ")
    )
    text = PAGE.read_text(encoding="utf-8")
    assert page.content == text.encode()
    for element in ("script", "style"):
        assert text.count(f"<{element}") == 1
        own = text.split(f"<{element}")[1].partition(">")[2].split(f"</{element}>")[0]
        digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
        assert policy[f"{element}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == "'self'"
    # What no hash of an element allows.
    assert not any(word in text for word in (" onclick=", ' style="', "@import"))
