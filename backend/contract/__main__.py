"""`python -m duet.backend.contract NAME`: list the missing parts of a backend, one per line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from duet.backend import completeness, select


def main(arguments: Sequence[str]) -> int:
    """Return 0 for a complete backend, 1 for an incomplete one, 2 for one that is not usable."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        asked = any(word in ("-h", "--help") for word in arguments)
        stream = sys.stdout if asked else sys.stderr
        stream.write(f"usage: python -m duet.backend.contract {'|'.join(select.FRAMEWORKS)}\n")
        return 0 if asked else 2
    try:
        lines = completeness.missing(arguments[0])
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130  # the shell's exit status for Ctrl-C
    except select.BackendError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
