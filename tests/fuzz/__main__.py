"""`python -m tests.fuzz`: read mutants of files of every kind, and print the faults.

Each mutant is a function of (reader, seed, index), so that a fault can be repeated.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fuzz.campaign import Fault, Outcome, read_mutants
from tests.fuzz.child import mutant, readers
from tests.fuzz.reader import Reader

FOLDER = Path("runs/fuzz")


def main() -> int:
    known = readers()
    flags = parse_flags(known)
    indices = range(flags.mutants) if flags.only is None else range(flags.only, flags.only + 1)
    begin, total = time.monotonic(), Outcome()
    with ThreadPoolExecutor(flags.processes) as pool:
        for outcomes in pool.map(
            lambda name: read_mutants(flags.seed, {name: indices}), flags.reader
        ):
            for name, outcome in outcomes.items():
                print(f"{name:20}{outcome}", flush=True)
                total.add(outcome)
    print(f"{'all':20}{total}\nin {time.monotonic() - begin:.0f} s; seed {flags.seed}")
    for fault in total.faults:
        print(f"\n{keep(fault, known[fault.reader])}\n{fault}")
    return 1 if total.faults else 0


def parse_flags(known: Mapping[str, Reader]) -> Namespace:
    parser = ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--reader", nargs="+", choices=known, default=list(known))
    parser.add_argument("--mutants", type=int, default=1000, help="of each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the index of one mutant, to repeat it")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    return parser.parse_args()


def keep(fault: Fault, reader: Reader) -> Path:
    """Write the mutant of a fault into runs/fuzz; return its path."""
    content = mutant(reader, fault.reader, list(reader.seeds()), fault.seed, fault.index)
    path = FOLDER / f"{fault.reader}-{fault.seed}-{fault.index}" / reader.file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


if __name__ == "__main__":
    sys.exit(main())
