"""`python -m duet.models.detect FLAGS`: the prediction process of `duet serve`.

It takes the server's flags, reads requests from stdin and writes answers to stdout, in frames. It
ends when stdin closes.
"""

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before imports that may be slow or missing

import os
import signal
import sys

from duet import backend
from duet.utils.processes.command import run_command
from duet.utils.processes.exit_status import EXIT_DONE, end_process
from duet.utils.serve.config import parse_serve_flags
from duet.utils.system.children import KILL, ask_for_signal_when_parent_ends


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the server ends this process
    ask_for_signal_when_parent_ends(KILL)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # keep libraries' prints out of the answers
    config = parse_serve_flags()
    backend.use(config.backend)
    from duet.models.detect.worker import Worker, load_model

    models = [load_model(source, config) for source in config.models]
    Worker(models, config, answers).run(sys.stdin.buffer)
    end_process(EXIT_DONE)  # without waiting for threads, whose answers nobody needs


if __name__ == "__main__":
    run_command(main)
