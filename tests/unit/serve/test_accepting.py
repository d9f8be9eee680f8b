"""What an Accept header asks for."""

import pytest

from utils.serve.accepting import answer_kind
from utils.serve.failures import RequestError


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "json"),
        ("*/*", "json"),
        ("application/json", "json"),
        ("Application/JSON; charset=utf-8", "json"),
        ("image/*", "jpeg"),
        ("image/png", "png"),
        ("image/png, image/jpeg", "png"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "json"),
        ("application/json;q=0.5, image/jpeg;q=0.9", "jpeg"),
        ("application/json;q=0, image/webp, */*;q=0.1", "jpeg"),
        ("application/json;q=0, */*", "jpeg"),
        ("*/*, application/json;q=0, image/jpeg;q=0", "png"),
        ("image/*, image/jpeg;q=0.1, application/json;q=0.5", "png"),
        ("application/json;q=0.2, application/*, image/png;q=0.3", "png"),
        ("*/*, image/png", "json"),
        ("image/png;q=nan, */*", "json"),
        ("image/avif,image/webp,image/png;q=0.9,*/*;q=0.8", "png"),
    ],
)
def test_what_a_client_likes_best_is_sent(accept, kind):
    assert answer_kind(accept) == kind


@pytest.mark.parametrize(
    "accept", ["text/html", "application/json;q=0", "image/png;q=x", ",;,", "*/*;q=0"]
)
def test_a_client_that_takes_none_is_told_what_there_is(accept):
    with pytest.raises(RequestError, match="accepted: application/json, image/jpeg, image/png"):
        answer_kind(accept)
