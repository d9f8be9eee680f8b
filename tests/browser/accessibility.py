"""What keeps people with disabilities from a page, as axe-core finds it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import pytest

from tests.browser.chromium import Page
from tests.browser.install import AXE, AXE_SCRIPT, installed_folder

REMEDY = "no axe-core: python3 -m tests.browser.install"
# No style sheet is fetched once more: a page that is a file could not.
RUN = """axe.run(document, { resultTypes: ["violations"], preload: false, rules: RULES })
  .then(({ violations }) => violations.map(({ id, impact, help, nodes }) =>
    ({ id, impact, help, nodes: nodes.map(({ html }) => html.slice(0, 200)) })))"""


def violations(page: Page, without: Sequence[str] = ()) -> list[dict[str, Any]]:
    """What axe-core holds against a page that is open: id, impact, help, nodes.

    without: ids of rules that are not tried.

    Without axe-core the test is skipped; it fails instead where REQUIRE_BROWSER=1.
    """
    script = installed_folder(AXE.name, AXE) / AXE_SCRIPT
    if not script.exists():
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail(REMEDY)
        pytest.skip(REMEDY)
    page.evaluate(script.read_text(encoding="utf-8") + ";0")
    rules = json.dumps({rule: {"enabled": False} for rule in without})
    run = RUN.replace("RULES", rules)
    answer = page.call("Runtime.evaluate", expression=run, awaitPromise=True, returnByValue=True)
    assert "exceptionDetails" not in answer, answer
    return answer["result"]["value"]
