"""What every command line shares: flags read strictly, user errors as one message."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from backend import BackendError
from utils.data.errors import LoaderError
from utils.errors import UserError
from utils.suspend import Suspended

EXIT_LOADER_ERROR = 1
EXIT_USER_ERROR = 2
EXIT_SUSPENDED = 75  # EX_TEMPFAIL of sysexits.h: to be tried again
EXIT_INTERRUPTED = 130


def new_parser(program: str, description: str) -> argparse.ArgumentParser:
    """An argument parser that accepts no abbreviations and shows every default."""
    return argparse.ArgumentParser(
        prog=program,
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )


def add_common_flags(parser: argparse.ArgumentParser, batch_size: int, project: str) -> None:
    """The flags that train.py and val.py share, with the public names and their synonyms."""
    add = parser.add_argument
    add("--backend", choices=("torch", "oneflow"), help="framework; YOLO_BACKEND, else found")
    add("--weights", type=str.strip, default="", metavar="F", help="file of docs/weights.md")
    add("--data", default="shapes", metavar="D", help="dataset YAML, or 'shapes', the built-in one")
    add("--img", "--imgsz", "--img-size", dest="image_size", type=int, default=640, metavar="PX",
        help="long side of the images")  # fmt: skip
    add("--batch", "--batch-size", dest="batch_size", type=int, default=batch_size, metavar="N",
        help="images a batch")  # fmt: skip
    add("--device", default="", help="cpu, 0 for the first GPU; '' takes a GPU if there is one")
    add("--workers", type=int, default=8, metavar="N", help="loader processes, at most the cores")
    add("--project", type=Path, default=Path(project), metavar="P", help="folder of the runs")
    add("--name", default="exp", metavar="N", help="folder of this run inside the project")
    add("--bind-numa", action="store_true",
        help="keep each process, its loader and memory on the NUMA node of its device")  # fmt: skip
    add("--exist-ok", action="store_true", help="write into the folder when it exists already")


def run_command(main: Callable[[], None]) -> None:
    """Run a command's main; a user's mistake ends it with one message and exit code 2.

    So does a loader worker's failure, with exit code 1. A suspended run ends with 75.
    """
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stdout)
    try:
        main()
    except (UserError, BackendError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    except OSError as error:  # a full disk, a folder without permission, a closed pipe
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    except LoaderError as error:  # a worker died, or its text holds the worker's own traceback
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_LOADER_ERROR)
    except Suspended as suspended:
        print(suspended)
        sys.exit(EXIT_SUSPENDED)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
