"""Make Python look like that of another system, to this project's modules alone.

Python imports this first in each process whose PYTHONPATH has this folder. Modules of `duet` that
import os, select, signal, sys, subprocess or ctypes get one without what the system of the variable
EMULATED_SYSTEM lacks. Other packages have code of their own for each system, and see the real one.
"""

import asyncio
import builtins
import contextlib
import ctypes
import errno
import fcntl
import os
import pathlib
import select
import signal
import subprocess
import sys
import types
from typing import Any

import numpy

from tests.frameworks import keep_compiler_out

SYSTEM = os.environ["EMULATED_SYSTEM"]
NOT_ON_MACOS = {
    "os": {"memfd_create", "pidfd_open", "pipe2", "posix_fadvise", "sched_getaffinity",
           "sched_setaffinity", "setns", "unshare", "eventfd", "splice"},
    "signal": {"SIGPWR", "SIGPOLL", "SIGSTKFLT", "SIGRTMIN", "SIGRTMAX", "sigtimedwait"},
}  # fmt: skip
NOT_ON_WINDOWS = {
    "os": NOT_ON_MACOS["os"] | {
        "fork", "forkpty", "register_at_fork", "symlink", "mkfifo", "pread", "pwrite", "killpg",
        "getpgid", "setsid", "uname", "sysconf", "getloadavg", "getuid", "geteuid", "getgid",
        "getegid", "WNOHANG", "statvfs", "fchmod", "chown", "fchown", "posix_spawn", "nice",
        "O_NONBLOCK", "O_NOCTTY", "O_NOFOLLOW", "O_CLOEXEC", "O_DIRECTORY", "O_SYNC",
    },
    "signal": {name for name in dir(signal) if name.startswith("SIG")}
    - {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM", "SIG_DFL", "SIG_IGN"}
    | {"pthread_sigmask", "pthread_kill", "alarm", "setitimer", "sigwait", "pause"},
}  # fmt: skip
MISSING = NOT_ON_WINDOWS if SYSTEM == "windows" else NOT_ON_MACOS
BLOCKED = {"fcntl", "resource", "pwd", "grp", "termios"} if SYSTEM == "windows" else set()
POSIX_OPTIONS = ("preexec_fn", "pass_fds", "process_group")
NEW_GROUP = 0x200
FIRST_HANDLE = 10_000  # of files: Windows' numbers of open files mean nothing to other processes
real_import, real_exists = builtins.__import__, pathlib.Path.exists


class Other(types.ModuleType):
    """A module without some names, and with others instead."""

    def __init__(self, module: types.ModuleType, lacks: set[str], **instead: Any) -> None:
        super().__init__(module.__name__)
        vars(self).update(_module=module, _lacks=lacks, _instead=instead)

    def __getattr__(self, name: str) -> Any:
        if name in self._lacks:
            raise AttributeError(f"module {self._module.__name__!r} has no attribute {name!r}")
        return self._instead[name] if name in self._instead else getattr(self._module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)


def as_on_windows(options: dict[str, Any]) -> dict[str, Any]:
    """Refuse the options of Popen that Windows refuses, and translate its own."""
    for name in POSIX_OPTIONS:
        if options.pop(name, None):
            raise ValueError(f"{name} is not supported on Windows platforms")
    options["start_new_session"] = options.pop("creationflags", 0) == NEW_GROUP
    startup = options.pop("startupinfo", None)
    handles = startup.lpAttributeList["handle_list"] if startup else []
    if not inheritable.issuperset(handles):
        raise OSError(errno.EINVAL, "The parameter is incorrect")
    return {**options, "pass_fds": [handle % FIRST_HANDLE for handle in handles]}


class WindowsPopen(subprocess.Popen):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **as_on_windows(options))

    def send_signal(self, number: int) -> None:
        if number not in (signal.SIGTERM, BREAK):
            raise ValueError(f"Unsupported signal: {number}")
        super().send_signal(signal.SIGKILL if number == signal.SIGTERM else number)

    def terminate(self) -> None:
        self.kill()

    def kill(self) -> None:
        super().send_signal(signal.SIGKILL)


def windows_run(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[Any]:
    return subprocess.run(*arguments, **as_on_windows(options))


async def windows_exec(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
    return await start_in_loop(*arguments, **as_on_windows(options))


def is_open(path: object) -> bool:
    """Return whether a process of this user has a file open, or mapped into its memory."""
    name = os.path.realpath(os.fspath(path))
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            maps = (process / "maps").read_text("utf-8", "replace").splitlines()
            if any(line.endswith(f" {name}") for line in maps):
                return True
            for file in os.listdir(process / "fd"):
                with contextlib.suppress(FileNotFoundError):  # closed
                    if os.readlink(process / "fd" / file) == name:
                        return True
    return False


def windows_replace(source: Any, target: Any, **folders: Any) -> None:
    if is_open(target) or is_open(source):
        raise PermissionError(errno.EACCES, "Access is denied", source, None, target)
    os.replace(source, target, **folders)


def windows_open(path: Any, *arguments: Any, **options: Any) -> int:
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
    if len(os.path.abspath(path)) >= 260:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", os.fspath(path))
    return os.open(path, *arguments, **options)


def windows_kill(process: int, number: int) -> None:
    os.kill(process, number if number == BREAK else signal.SIGKILL)


def windows_library(name: str | None, *arguments: Any, **options: Any) -> ctypes.CDLL:
    if name is None:
        raise TypeError("argument of type 'NoneType' is not iterable")
    return ctypes.CDLL(name, *arguments, **options)


def windows_lock(descriptor: int, mode: int, count: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PermissionError(errno.EACCES, "Permission denied") from error


def windows_array(values: Any, dtype: Any = None, **options: Any) -> numpy.ndarray:
    """Before NumPy 2, Python's integers become int32."""
    array = numpy.array(values, dtype, **options)
    if dtype is None and array.dtype == numpy.int64 and not isinstance(values, numpy.ndarray):
        of_python = all(type(x) is int for x in numpy.array(values, object).flat)
        array = array.astype(numpy.int32) if of_python else array
    return array


def windows_arange(*limits: Any, dtype: Any = None) -> numpy.ndarray:
    array = numpy.arange(*limits, dtype=dtype)
    of_python = dtype is None and all(type(x) is int for x in limits)
    return array.astype(numpy.int32) if of_python else array


def is_of_linux(path: object) -> bool:
    return str(path).startswith(("/proc", "/sys/", "/var/tmp"))


path_module = Other(os.path, set(), exists=lambda x: not is_of_linux(x) and os.path.exists(x))
INSTEAD: dict[str, types.ModuleType] = {
    "os": Other(os, MISSING["os"], path=path_module),
    "signal": Other(signal, MISSING["signal"]),
    "sys": Other(sys, set(), platform={"windows": "win32", "macos": "darwin"}[SYSTEM]),
}
BREAK = signal.SIGUSR2  # stands for SIGBREAK
inheritable: set[int] = set()
start_in_loop = asyncio.create_subprocess_exec
if SYSTEM == "windows":
    INSTEAD["os"]._instead.update(
        open=windows_open, replace=windows_replace, kill=windows_kill,
        set_handle_inheritable=lambda handle, wanted: inheritable.add(handle),
    )  # fmt: skip
    INSTEAD["signal"]._instead.update(SIGBREAK=BREAK, CTRL_BREAK_EVENT=BREAK)
    INSTEAD["subprocess"] = Other(
        subprocess, set(), Popen=WindowsPopen, run=windows_run, CREATE_NEW_PROCESS_GROUP=NEW_GROUP,
        STARTUPINFO=types.SimpleNamespace,
    )  # fmt: skip
    INSTEAD["ctypes"] = Other(ctypes, set(), CDLL=windows_library)
    INSTEAD["select"] = Other(select, {"poll", "epoll"})
    INSTEAD["numpy"] = Other(numpy, set(), array=windows_array, arange=windows_arange)
    INSTEAD["msvcrt"] = Other(
        types.ModuleType("msvcrt"), set(), LK_NBLCK=2, locking=windows_lock,
        get_osfhandle=lambda descriptor: FIRST_HANDLE + descriptor,
        open_osfhandle=lambda handle, flags: handle - FIRST_HANDLE,
    )  # fmt: skip
    asyncio.create_subprocess_exec = asyncio.subprocess.create_subprocess_exec = windows_exec


def is_ours(name: str) -> bool:
    return name == "__main__" or name.partition(".")[0] == "duet"


def import_as_elsewhere(name: str, globals=None, locals=None, fromlist=(), level=0) -> Any:
    if level == 0 and is_ours(str((globals or {}).get("__name__", ""))):
        if name in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name in INSTEAD:
            return INSTEAD[name]
    return real_import(name, globals, locals, fromlist, level)


def refuse_files_of_linux(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and is_of_linux(arguments[0]):
        frame = sys._getframe(1)
        while frame is not None and frame.f_globals.get("__name__", "").startswith("pathlib"):
            frame = frame.f_back
        if frame is not None and is_ours(frame.f_globals.get("__name__", "")):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", arguments[0])


keep_compiler_out()
builtins.__import__ = import_as_elsewhere
pathlib.Path.exists = lambda self: not is_of_linux(self) and real_exists(self)
sys.addaudithook(refuse_files_of_linux)
