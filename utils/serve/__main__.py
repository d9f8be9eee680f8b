"""`duet serve`: serve models over HTTP.

duet serve --weights runs/train/exp/weights/best.safetensors
"""

import sys
from pathlib import Path

from duet.utils.optional import import_optional
from duet.utils.processes.command import run_command
from duet.utils.serve.config import PROGRAM, parse_serve_flags
from duet.utils.weights.load import require_present


def main() -> None:
    arguments = sys.argv[1:]
    config = parse_serve_flags(arguments)
    import_optional("starlette", PROGRAM)
    from duet.utils.serve.requests import read_tokens
    from duet.utils.serve.server import listening_socket, serve

    for model in config.models:  # before the address is announced
        require_present(Path(model.weights))
    tokens = read_tokens(config.token_file)
    with listening_socket(config) as listener:
        sys.exit(serve(config, arguments, listener, tokens))


if __name__ == "__main__":
    run_command(main)
