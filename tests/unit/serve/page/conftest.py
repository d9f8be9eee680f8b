"""A browser at the page of a server, whose answers a stand-in gives."""

import pytest

from tests.browser.chromium import chromium
from tests.serve_answers import FOUND, MODELS, answering, write_image
from tests.serve_page import ServePage
from tests.serve_stand_in import stand_in


@pytest.fixture(scope="session")
def browser():
    with chromium() as browser:
        yield browser


@pytest.fixture
def site():
    with stand_in() as site:
        site.models, site.answer = MODELS[:1], answering(FOUND)
        yield site


@pytest.fixture
def page(browser, site):
    page = ServePage(browser, site.root)
    page.open()
    return page


@pytest.fixture
def image(tmp_path):
    return write_image(tmp_path / "image.png")
