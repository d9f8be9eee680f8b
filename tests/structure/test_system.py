"""One room knows the operating system: utils/system/, and backend/system.py below it."""

import ast
from collections.abc import Iterator

from tests.structure.test_imports import PROJECT, PYTHON_FILES, parse

ROOM, BELOW = "utils/system/", "backend/system.py"
OTHERS = ("tests/", "docs/")
MODULES = {"fcntl", "resource", "pwd", "grp", "msvcrt", "termios", "winreg"}
PORTABLE_SIGNALS = {"SIGINT", "SIGTERM", "SIG_DFL", "SIG_IGN"}
PORTABLE_FLAGS = {"O_RDONLY", "O_WRONLY", "O_RDWR", "O_CREAT", "O_EXCL", "O_TRUNC", "O_APPEND"}
# What Windows or macOS lacks of the module os, and of signal; arguments of Popen.
OF_POSIX = {
    "fork", "register_at_fork", "memfd_create", "pread", "pwrite", "killpg", "setsid", "uname",
    "sysconf", "getloadavg", "getuid", "geteuid", "getgid", "getegid", "mkfifo", "WNOHANG",
    "statvfs", "fchmod", "pthread_sigmask", "alarm", "setitimer", "sigwait", "pipe2",
}  # fmt: skip
OF_POPEN = {"preexec_fn", "process_group"}  # Windows ignores start_new_session


def system_names(tree: ast.AST) -> Iterator[str]:
    """What a file uses that is not the same on every operating system."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from {alias.name for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            yield node.module
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if is_of_system(node.value.id, node.attr):
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node).startswith("ctypes.CDLL(None"):
            yield "ctypes.CDLL(None)"
        elif isinstance(node, ast.keyword) and node.arg in OF_POPEN:
            yield node.arg
        elif isinstance(node, ast.Constant) and str(node.value).startswith(("/proc", "/sys/")):
            yield str(node.value)


def is_of_system(module: str, name: str) -> bool:
    if module == "signal" and name.startswith("SIG"):
        return name not in PORTABLE_SIGNALS
    if module == "os" and name.startswith(("O_", "sched_")):
        return name not in PORTABLE_FLAGS
    return module in ("os", "signal") and name in OF_POSIX


def test_one_room_knows_the_operating_system() -> None:
    found = {
        (name, used)
        for path in PYTHON_FILES
        if not (name := str(path.relative_to(PROJECT))).startswith((ROOM, BELOW, *OTHERS))
        for used in system_names(parse(path))
    }
    assert found == set()


def opens_in_the_systems_encoding(call: ast.Call) -> bool:
    """Whether a call opens a text without naming its encoding, which is not UTF-8 on Windows."""
    named = {keyword.arg for keyword in call.keywords} & {"encoding", "opener", None}
    words = [ast.unparse(x) for x in call.args]
    _, is_method, name = ast.unparse(call.func).rpartition(".")
    if is_method:
        return not named and (name, len(words)) in {("read_text", 0), ("write_text", 1)}
    return not named and name == "open" and not any("b" in mode for mode in words[1:2])


def test_texts_are_opened_in_a_named_encoding() -> None:
    files = [path for path in PYTHON_FILES if "tests" not in path.relative_to(PROJECT).parts]
    found = [
        f"{path.relative_to(PROJECT)}:{node.lineno}"
        for path in files
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and opens_in_the_systems_encoding(node)
    ]
    assert found == []
