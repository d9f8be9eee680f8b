"""`python -m utils.serve`: weights -> a server that answers an image with the objects in it.

python -m utils.serve --weights runs/train/exp/weights/best.safetensors
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

from utils.cli.serve_config import PROGRAM, parse_serve_flags
from utils.optional import import_optional
from utils.processes.command import run_command
from utils.serve.addresses import listening_socket
from utils.serve.tokens import read_tokens


def main() -> None:
    config = parse_serve_flags()
    tokens = read_tokens(config.token_file)
    import_optional("fastapi", PROGRAM)
    from utils.serve.service import serve

    with listening_socket(config) as listener:
        serve(config, listener, tokens)


if __name__ == "__main__":
    run_command(main)
