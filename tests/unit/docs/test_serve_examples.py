"""docs/examples/serve and docs/en/serve.md fit the server: its flags, limits, paths and figures."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from duet.utils.project import PROJECT
from duet.utils.serve.config import PROGRAM, ServeConfig, parse_serve_flags
from duet.utils.serve.requests import OPEN_PATHS

EXAMPLES = PROJECT / "docs" / "examples" / "serve"
PAGE = (PROJECT / "docs" / "en" / "serve.md").read_text(encoding="utf-8")
DEFAULT_BYTES, DEFAULT_SECONDS = ServeConfig.max_bytes, ServeConfig.timeout
MEBIBYTE = 1 << 20


def text_of(name):
    return (EXAMPLES / name).read_text(encoding="utf-8")


def joined_lines(text):
    """Lines without comments; one that ends in a backslash goes on."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()


def flags_of(words):
    """The settings of a command line of the server."""
    start = words.index("serve") + 1
    return parse_serve_flags(words[start:])


def test_the_unit_starts_a_server_that_systemd_does_not_cut_off():
    lines = joined_lines(text_of("duet.service"))
    unit = dict(line.split("=", 1) for line in lines if "=" in line)
    config = flags_of(shlex.split(unit["ExecStart"]))
    assert str(config.token_file) == "%d/tokens" and config.host == "127.0.0.1"
    assert unit["LoadCredential"].startswith("tokens:/")
    assert int(unit["TimeoutStopSec"]) > config.timeout
    assert unit["User"] not in ("", "root") and unit["NoNewPrivileges"] == "yes"
    assert unit["ProtectSystem"] == "strict" and unit["CapabilityBoundingSet"] == ""


def test_the_container_runs_the_server_without_rights_and_looks_after_it():
    lines = joined_lines(text_of("Dockerfile"))
    found = [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]
    last = max(index for index, (word, _) in enumerate(found) if word == "FROM")
    stage = dict(found[last:])
    assert all(re.match(r"\S+:[\w.-]+( AS \w+)?$", rest) for word, rest in found if word == "FROM")
    words = json.loads(stage["ENTRYPOINT"]) + json.loads(stage["CMD"])
    config = flags_of(words)
    assert (config.host, f"{config.port}") == ("0.0.0.0", stage["EXPOSE"])
    assert config.token_file is not None and not config.insecure
    assert stage["USER"] == "10001"
    health = json.loads(stage["HEALTHCHECK"].split("CMD", 1)[1])
    path = re.search(rf"http://127\.0\.0\.1:{config.port}(/\w+)", health[-1])[1]
    assert path in OPEN_PATHS
    compile(health[-1], "health", "exec")


@pytest.mark.parametrize(
    ("name", "body", "seconds"),
    [
        ("nginx.conf", r"client_max_body_size (\d+)m;", r"proxy_read_timeout (\d+)s;"),
        ("Caddyfile", r"max_size (\d+)MiB\n", r"response_header_timeout (\d+)s\n"),
    ],
)
def test_proxies_leave_the_limits_to_the_server(name, body, seconds):
    text = "\n".join(line for line in text_of(name).splitlines() if "#" not in line)
    assert int(re.search(body, text)[1]) * MEBIBYTE > DEFAULT_BYTES
    assert int(re.search(seconds, text)[1]) > 2 * DEFAULT_SECONDS
    assert f"127.0.0.1:{ServeConfig.port}" in text
    assert text.count("{") == text.count("}") > 0


def test_the_commands_of_the_page_are_understood():
    lines = [line for block in PAGE.split("```")[1::2] for line in joined_lines(block)]
    found = [shlex.split(line) for line in lines if PROGRAM.removeprefix("python ") in line]
    assert len(found) > 1
    for words in found:
        assert flags_of(words).weights == ("yolov5n.pt",)


def test_answers_of_the_page_are_json():
    found = [json.loads(line) for block in re.findall(r"```json\n(.*?)```", PAGE, re.S)
             for line in block.splitlines()]  # fmt: skip
    assert [next(iter(answer)) for answer in found] == ["model", "error", "time"]


def test_the_page_names_the_figures_and_the_codes_of_all_errors():
    sources = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("utils/serve", "models/detection")
        for path in (PROJECT / folder).glob("*.py")
    )
    figures = set(re.findall(r'"(duet_\w+)"', sources))
    reported = re.findall(r"^\| `(duet_\w+?)(?:_total)?`", PAGE, re.M)
    assert set(reported) == figures and len(figures) > 5
    raised = set(re.findall(r"\d{3}(?:, |: \()\"(\w+)\"", sources))
    raised |= {"not_found", "method_not_allowed", "bad_image", "bad_request", "failed"}
    table = PAGE[PAGE.index("| | code |") :].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`", table)) == raised
