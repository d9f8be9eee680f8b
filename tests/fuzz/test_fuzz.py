"""Mutants of files of every kind give results or clear errors, within stated time and memory."""

import mmap
import re
import sys
import time

import pytest

from duet.utils.errors import UserError
from duet.utils.project import PROJECT
from tests.fuzz.campaign import MAX_BYTES, MIB, Reader, judge, read_mutants, readers
from tests.structure.test_imports import PYTHON_FILES

READERS = readers()
MUTANTS = 60  # of each reader; `make fuzz` reads more


@pytest.fixture(scope="module")
def outcomes():
    return read_mutants(0, dict.fromkeys(READERS, range(MUTANTS)))


@pytest.mark.parametrize("name", READERS)
def test_mutants_are_read_or_refused(outcomes, name):
    assert not outcomes[name].faults, outcomes[name].report(name, 0)
    assert outcomes[name].kinds["refused"] + outcomes[name].kinds["read"] == MUTANTS


# Modules that read what no seed gives them, and who tries such a file.
OTHERWISE = {
    "duet.models.training.from_labels": "model-yaml",
    "duet.utils.comparison.runs": "results-csv",
    "duet.utils.data.check.corrected_copy": "dataset-yaml",
    "duet.utils.data.fetch.__main__": "fetch-answer",
    "duet.utils.data.records.__main__": "records",
    "duet.utils.data.shapes.dataset": "dataset-yaml",
    "duet.utils.data.sources.annotations": "kept-arrays",
    "duet.utils.detect.media.image_file": "gif",
    "duet.utils.evaluation.coco.results_file": "dataset-yaml",  # the project's own YAML
    "duet.utils.export.converters": "exported-zip",
    "duet.utils.export.opening": "onnx",
    "duet.utils.export.tensorrt": "exported-metadata",
    "duet.utils.files.array_cache": "kept-arrays",
    "duet.utils.files.html": "labels",  # the project's own style
    "duet.utils.report.loggers": "png",  # our own plots
    "duet.utils.serve.app": "labels",  # the project's own page
    "duet.utils.serve.frames": "serve-query",  # between processes of ours
}
READING = re.compile(
    r"^from duet\.utils\.files\.(regular|json_files|yaml_files|xml_files) import "
    r"(\([^)]*|.*)\b(read_|open_|parse_)",
    re.MULTILINE,
)


def test_every_reading_module_is_fuzzed(outcomes):
    reads = {
        ".".join(("duet", *path.relative_to(PROJECT).with_suffix("").parts))
        for path in PYTHON_FILES
        if path.relative_to(PROJECT).parts[0] in ("utils", "models")
        and READING.search(path.read_text(encoding="utf-8"))
    }
    tried = {name for outcome in outcomes.values() for name in outcome.modules}
    assert len(reads) > 20 and reads - tried == OTHERWISE.keys()
    assert set(OTHERWISE.values()) <= READERS.keys()


# The fuzzer itself.


def wait(path):
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass


def refuse(path):
    raise UserError("no " + path.read_text())


def fail(path):
    raise KeyError("x")


def fill(path):
    """Take memory from the system, whatever freed memory this process has kept."""
    with mmap.mmap(-1, 64 * MIB) as memory:
        memory.write(bytes(64 * MIB))


@pytest.mark.parametrize(
    ("read", "text", "kind", "what"),
    [
        (lambda path: None, "a", "read", ""),
        (refuse, "a", "refused", "no a"),
        (refuse, "a" * 6000, "fault", "a message of 6003 characters"),
        (fail, "a", "fault", "KeyError: 'x'"),
        (wait, "a", "fault", "at most 0.1 s allowed"),
        (fill, "a", "fault", "at most 16 MiB allowed"),
    ],
)
def test_each_kind_of_fault_is_reported(tmp_path, read, text, kind, what, monkeypatch):
    monkeypatch.setattr("tests.fuzz.campaign._end_after", lambda seconds: None)  # not this process
    path = tmp_path / "a"
    path.write_text(text)
    found = judge(Reader(read, list, "a", memory_bytes=16 * MIB, seconds=0.1), path, size=1)
    assert found[0] == kind and what in found[1]


DIES = """
import json, os, sys
name, first, last = sys.argv[2].split(":")
print(json.dumps([name, int(first) - 1, "seeds", []]), flush=True)
for index in range(int(first), int(last)):
    if index == 3:
        os.abort()
    print(json.dumps([name, index, "read", ""]), flush=True)
"""


def test_fuzzing_continues_after_a_mutant_ends_the_process():
    outcome = read_mutants(0, {"dies": range(6)}, (sys.executable, "-c", DIES))["dies"]
    assert list(outcome.faults) == [3] and "SIGABRT" in outcome.report("dies", 0)
    assert outcome.kinds["read"] == 5


def test_reader_refusing_its_seeds_is_an_error():
    with pytest.raises(RuntimeError, match="own seeds"):
        read_mutants(0, {"a": range(6)}, (sys.executable, "-c", "raise SystemExit(1)"))


def test_mutants_are_reproducible_and_differ_from_the_seeds():
    seeds = [b"one: 1\n", b"[1, 2.5]"]
    reader = Reader(refuse, lambda: seeds, "a", [b"token"])

    def mutants(seed):
        return [reader.mutant("a", seeds, seed, index) for index in range(200)]

    made = mutants(1)
    assert made == mutants(1) and made != mutants(2)
    assert sum(mutant in seeds for mutant in made) < 40
    assert any(b"token" in mutant for mutant in made)
    assert max(map(len, made)) <= MAX_BYTES
