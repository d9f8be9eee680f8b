"""Pages: includes, both languages, length, the way through the core; serve.md and its examples."""

import json
import re
import shlex

import pytest

from duet import backend
from duet.utils.evolution.study import RANGES
from duet.utils.files.model_yamls import shipped_model
from duet.utils.files.yaml_files import parse_yaml
from duet.utils.project import PROJECT
from duet.utils.serve.config import PROGRAM, ServeConfig, parse_serve_flags
from duet.utils.serve.requests import OPEN_PATHS
from tests.docs_blocks.blocks import BLOCKS

DOCS = PROJECT / "docs"
PAGES = sorted([*DOCS.glob("en/**/*.md"), *DOCS.glob("zh/**/*.md")])
# `--8<-- "blocks/NAME.py"`, perhaps with a section or lines; `;--8<--` shows the mark itself.
INCLUDED = re.compile(r'(?<!;)--8<-- "([^":]+)(?::([\w:,-]+))?"')
SPOILED = re.compile(r"--8 ?< ?--(?! \")|--8 < --")
FIGURE = re.compile(r"figures/([\w.-]+?)\.(en|zh)\.svg")
SOURCE = re.compile(r"^<!-- source: ([\w/.]+) ([\w.]+) -->$", re.M)
VALUE = re.compile(r"\{\{ *([\w-]+)\.([\w-]+) *\}\}")


def included_in(text):
    """What a page takes from elsewhere: files with sections and figures, in order, and values."""
    marks = [(found[1], found[2] or "") for found in INCLUDED.finditer(text)]
    values = sorted({f"{name}.{key}" for name, key in VALUE.findall(text)})
    return marks, [name for name, _ in FIGURE.findall(text)], values


def problems_of(text):
    """What a page includes that is not there, and marks that mean nothing."""
    found = [f"{mark} includes nothing" for mark in SPOILED.findall(text)]
    for name, section in included_in(text)[0]:
        path = DOCS / name if (DOCS / name).is_file() else PROJECT / name  # such as CHANGELOG.md
        if not path.is_file():
            found.append(f"{name} is not there")
        elif section[:1].isalpha() and f"[start:{section}]" not in path.read_text(encoding="utf-8"):
            found.append(f"{name} has no section {section}")
    for name, function in SOURCE.findall(text):
        last = function.rpartition(".")[2]
        if not re.search(rf"^ *def {last}\(", (PROJECT / name).read_text(encoding="utf-8"), re.M):
            found.append(f"{name} has no {function}")
    for name, key in VALUE.findall(text):
        path = BLOCKS / f"{name}.json"
        values = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if key not in values:
            found.append(f"{name}.json has no {key}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_included_files_and_values_exist(page):
    text = page.read_text(encoding="utf-8")
    assert problems_of(text) == []
    assert {language for _, language in FIGURE.findall(text)} <= set(page.relative_to(DOCS).parts)


@pytest.mark.parametrize("page", sorted(DOCS.glob("zh/**/*.md")), ids=lambda page: page.stem)
def test_both_languages_include_the_same_blocks(page):
    other = DOCS / "en" / page.relative_to(DOCS / "zh")
    text = page.read_text(encoding="utf-8").replace(".zh.svg", ".en.svg")
    assert included_in(text) == included_in(other.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if re.match(r"\d\d-|source-", page.name)],
    ids=lambda page: str(page.relative_to(DOCS)),
)
def test_tutorial_ends_with_exercises_answers_and_next_page(page):
    text = page.read_text(encoding="utf-8")
    if page.parent.name == "tutorials":
        assert re.match(rf"# {int(page.name[:2])}\. ", text)
        assert f"({page.name})" in (page.parent / "index.md").read_text(encoding="utf-8")
    _, end = re.split(r"^## (?:Exercises|练习)$", text, flags=re.M)
    questions, answers = re.split(r'^\?\?\? note "(?:Answers|答案)"$', end, flags=re.M)
    numbers = [re.findall(r"^ *(\d+)\. ", part, re.M) for part in (questions, answers)]
    assert len(numbers[0]) >= 3 and numbers[0] == numbers[1]
    assert re.search(r"^(?:Next: |下一页：).*\]\(.+\.md\)", answers, re.M)


def test_every_block_is_on_a_page():
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    files, _, values = included_in(text)
    used = {name.rpartition("/")[2].partition(".")[0] for name, _ in files}
    used |= {value.partition(".")[0] for value in values}
    files = [path for path in BLOCKS.iterdir() if path.is_file() and path.name != "ruff.toml"]
    assert {path.stem for path in files} <= used


ENGLISH, CHINESE = PROJECT / "README.md", PROJECT / "README.zh.md"
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r" *#.*")
LINK = re.compile(r"\]\(([^)#]+)")
MOST_WORDS = 700  # what a newcomer reads in a few minutes


def commands_of(text):
    """The blocks of code of a page, without their comments."""
    return [COMMENT.sub("", block) for block in FENCE.findall(text)]


def links_of(text):
    """The files that a page leads to, those of a Chinese page as the English ones."""
    links = LINK.findall(text)
    return [link.replace("docs/zh/", "docs/en/").replace(".zh.svg", ".en.svg") for link in links]


def test_both_languages_have_equal_commands_and_links():
    home = [(DOCS / language / "index.md").read_text(encoding="utf-8") for language in ("en", "zh")]
    assert commands_of(home[0]) == commands_of(home[1]) != []
    english, chinese = (path.read_text(encoding="utf-8") for path in (ENGLISH, CHINESE))
    assert commands_of(english) == commands_of(chinese)
    first, *others = links_of(english)
    assert (first, links_of(chinese)[0]) == (CHINESE.name, ENGLISH.name)  # each leads to the other
    assert links_of(chinese)[1:] == others


@pytest.mark.parametrize("path", [ENGLISH, CHINESE], ids=lambda path: path.name)
def test_every_link_leads_to_a_file(path):
    links = LINK.findall(path.read_text(encoding="utf-8"))
    assert [one for one in links if "://" not in one and not (PROJECT / one).is_file()] == []


def test_every_tutorial_is_linked_from_readme():
    folder = PROJECT / "docs" / "en" / "tutorials"
    tutorials = {f"docs/en/tutorials/{path.name}" for path in folder.glob("*.md")}
    assert tutorials and tutorials <= set(links_of(ENGLISH.read_text(encoding="utf-8")))


def test_readme_stays_within_its_word_limit():
    assert len(ENGLISH.read_text(encoding="utf-8").split()) <= MOST_WORDS


@pytest.mark.parametrize("language", ["en", "zh"])
def test_hyperparameter_tables_match_the_shipped_files(language):
    text = (DOCS / language / "hyperparameters.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([\d.]+) \| ([\d.]*) *\|(.*)\|$", text, re.M)
    public, small = (
        parse_yaml((PROJECT / "data" / "hyps" / f"hyp.{name}.yaml").read_bytes())
        for name in ("scratch-low", "small")
    )
    assert {name: float(value) for name, value, *_ in rows} == public
    assert {name: float(value or usual) for name, usual, value, _ in rows} == public | small
    ranges = {name: tuple(map(float, re.findall(r"[\d.]+", range_))) for name, *_, range_ in rows}
    searched = {name: RANGES[name][:2] if name in RANGES else () for name in public}
    assert ranges == searched


SIZE = re.compile(r"\| (yolov[\w.-]+) \| [\d.]+(?: M)? \| ([\d.]+)")


@pytest.mark.parametrize("path", [ENGLISH, CHINESE, DOCS / "en/recipe.md", DOCS / "zh/recipe.md"])
def test_stated_gflops_match_each_model_yaml(path):
    backend.use()
    from duet.models.graph import count_gflops, plan_layers, read_model_yaml

    rows = SIZE.findall(path.read_text(encoding="utf-8"))
    assert len(rows) >= 5
    for name, gflops in rows:
        plans = plan_layers(read_model_yaml(shipped_model(name)))
        assert f"{count_gflops(plans, folded=True):.1f}" == gflops, name


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


def test_systemd_unit_starts_a_server_within_its_limits():
    lines = joined_lines(text_of("duet.service"))
    unit = dict(line.split("=", 1) for line in lines if "=" in line)
    config = flags_of(shlex.split(unit["ExecStart"]))
    assert str(config.token_file) == "%d/tokens" and config.host == "127.0.0.1"
    assert unit["LoadCredential"].startswith("tokens:/")
    assert int(unit["TimeoutStopSec"]) > config.timeout
    assert unit["User"] not in ("", "root") and unit["NoNewPrivileges"] == "yes"
    assert unit["ProtectSystem"] == "strict" and unit["CapabilityBoundingSet"] == ""


def test_container_runs_unprivileged_with_a_health_check():
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
def test_proxy_limits_exceed_those_of_the_server(name, body, seconds):
    text = "\n".join(line for line in text_of(name).splitlines() if "#" not in line)
    assert int(re.search(body, text)[1]) * MEBIBYTE > DEFAULT_BYTES
    assert int(re.search(seconds, text)[1]) > 2 * DEFAULT_SECONDS
    assert f"127.0.0.1:{ServeConfig.port}" in text
    assert text.count("{") == text.count("}") > 0


def test_commands_on_the_page_parse():
    lines = [line for block in PAGE.split("```")[1::2] for line in joined_lines(block)]
    found = [shlex.split(line) for line in lines if PROGRAM in line]
    assert len(found) > 1
    for words in found:
        assert flags_of(words).weights == ("yolov5n.pt",)


def test_answers_on_the_page_are_json():
    found = [json.loads(line) for block in re.findall(r"```json\n(.*?)```", PAGE, re.S)
             for line in block.splitlines()]  # fmt: skip
    assert [next(iter(answer)) for answer in found] == ["model", "error", "time"]


def test_page_lists_all_metrics_and_error_codes():
    sources = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("utils/serve", "models/detect")
        for path in (PROJECT / folder).glob("*.py")
    )
    figures = set(re.findall(r'"(duet_\w+)"', sources))
    reported = re.findall(r"^\| `(duet_\w+?)(?:_total)?`", PAGE, re.M)
    assert set(reported) == figures and len(figures) > 5
    raised = set(re.findall(r"\d{3}(?:, |: \()\"(\w+)\"", sources))
    raised |= {"not_found", "method_not_allowed", "bad_image", "bad_request", "failed"}
    table = PAGE[PAGE.index("| | code |") :].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`", table)) == raised


FILE = re.compile(r"^\d+\. \[([\w./]+\.py)\]\(\.\./\.\./([\w./]+)\)", re.MULTILINE)
MOST_FILES, MOST_LINES = 18, 3600


def test_reading_path_stays_within_an_afternoon():
    english, chinese = (
        FILE.findall((DOCS / language / "reading.md").read_text(encoding="utf-8"))
        for language in ("en", "zh")
    )
    assert english == chinese and all(name == target for name, target in english)
    paths = [PROJECT / name for name, _ in english]
    assert 10 <= len(set(paths)) == len(paths) <= MOST_FILES
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths) <= MOST_LINES
