"""The locks are written from what uv resolved; no index is asked here."""

from __future__ import annotations

import pytest

from duet.utils.errors import UserError

pytest.importorskip("tomllib", reason="maintainers write locks with Python 3.11 or newer")
from duet.utils.setup import lock  # noqa: E402


@pytest.mark.parametrize(
    ("wheel", "fits"),
    [
        ("tqdm-4.70.1-py3-none-any.whl", True),
        ("six-1.17.0-py2.py3-none-any.whl", True),
        ("numpy-2.2.6-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("numpy-2.2.6-cp310-cp310-manylinux_2_17_aarch64.manylinux2014_aarch64.whl", True),
        ("torch-2.13.0-cp312-cp312-macosx_14_0_arm64.whl", True),
        ("nvidia_nccl_cu13-2.29.7-py3-none-manylinux_2_18_x86_64.whl", True),
        ("opencv_python_headless-4.11.0.86-cp37-abi3-manylinux2014_x86_64.whl", True),
        ("some_package-0.11.0.1-1-py3-none-any.whl", True),  # with a build number
        ("ast_serialize-0.13.1-cp315-abi3-manylinux2014_x86_64.whl", False),
        ("ast_serialize-0.13.1-cp314-cp314t-macosx_11_0_arm64.whl", False),
        ("numpy-2.2.6-cp313-cp313t-manylinux2014_x86_64.whl", False),
        ("numpy-2.2.6-pp310-pypy310_pp73-manylinux2014_x86_64.whl", False),
        ("numpy-2.2.6-cp39-cp39-manylinux2014_x86_64.whl", False),
        ("numpy-2.2.6-cp312-cp312-musllinux_1_2_x86_64.whl", False),
        ("numpy-2.2.6-cp312-cp312-win_amd64.whl", False),
        ("pillow-12.3.0-cp312-cp312-manylinux2014_ppc64le.whl", False),
    ],
)
def test_wheels_of_supported_machines_fit(wheel, fits):
    assert lock.fits(wheel) is fits


def package(name, *wheels, version="1.0", marker=None):
    found = {
        "name": name,
        "version": version,
        "wheels": [
            {"url": f"x/{name}-{version}-{tags}.whl", "hashes": {"sha256": digest}}
            for tags, digest in wheels
        ],
    }
    return found | ({"marker": marker} if marker else {})


@pytest.mark.parametrize(
    ("marker", "kept"),
    [
        (None, ""),
        ("python_full_version >= '3.10'", ""),
        ("python_full_version >= '3.10' and sys_platform == 'linux'", " ; sys_platform == 'linux'"),
        ("python_full_version == '3.10.*'", " ; python_full_version == '3.10.*'"),
    ],
)
def test_an_entry_has_the_sorted_hashes_of_the_wheels_that_fit_and_a_marker(marker, kept):
    wheels = [("py3-none-any", "bb"), ("cp39-cp39-manylinux2014_x86_64", "cc"),
        ("cp310-cp310-manylinux2014_x86_64", "aa")]  # fmt: skip
    found = lock.entry(package("a", *wheels, marker=marker))
    assert found == f"a==1.0{kept} \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb"


def test_a_package_without_a_fitting_wheel_is_an_error():
    with pytest.raises(UserError, match=r"a==1\.0 has no wheel that fits"):
        lock.entry(package("a", ("cp39-cp39-win_amd64", "aa")))


def test_builds_of_torch_have_locks_of_their_own(tmp_path, monkeypatch):
    resolved = {
        "torch": [
            package("torch", ("cp311-cp311-manylinux2014_x86_64", "aa"), version="2.0"),
            package("nvidia-nccl", ("py3-none-manylinux2014_x86_64", "bb")),
            package("sympy", ("py3-none-any", "cc")),
        ],
        "oneflow": [package("oneflow", ("cp310-cp310-manylinux2014_x86_64", "dd"))],
        "docs": [package("backrefs", ("py311-none-any", "ff"), ("py39-none-any", "aa"))],
    }
    monkeypatch.setattr(lock, "REQUIREMENTS", tmp_path)
    monkeypatch.setattr(lock, "resolve", resolved.get)
    (tmp_path / "torch-cpu.txt").write_text("torch==1.0+cpu \\\n")
    with pytest.raises(UserError, match="write version 2.0 and its hashes there"):
        lock.main()
    assert [path.name for path in tmp_path.iterdir()] == ["torch-cpu.txt"]
    (tmp_path / "torch-cpu.txt").write_text("torch==2.0+cpu \\\n    --hash=sha256:ee\n")
    lock.main()
    texts = {path.stem: path.read_text().splitlines()[1:] for path in tmp_path.iterdir()}
    assert texts["torch"] == ["sympy==1.0 \\", "    --hash=sha256:cc"]
    assert texts["torch-cuda"] == ["nvidia-nccl==1.0 \\", "    --hash=sha256:bb",
        "torch===2.0 \\", "    --hash=sha256:aa"]  # fmt: skip
    assert texts["oneflow"] == ["oneflow==1.0 \\", "    --hash=sha256:dd"]
    assert texts["docs"] == ["backrefs==1.0 \\", "    --hash=sha256:ff"]
