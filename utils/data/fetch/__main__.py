"""`duet fetch`: fetch the missing files of a list."""

import os
from pathlib import Path

from duet.utils.cli.flags import new_parser
from duet.utils.data.fetch.download import PART, Item, download, find_list, hash_of, unpack
from duet.utils.errors import UserError, os_fault
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.regular import read_text
from duet.utils.processes.command import run_command
from duet.utils.project import list_names
from duet.utils.system import files
from duet.utils.text import count, say

OUT = "DIR/"  # stands for --out in the next steps of a list
UNPACKED = ".unpacked"  # suffix of the file that replaces an unpacked archive, with its hash


def main() -> None:
    parser = new_parser("duet fetch", "Fetch the files of a list.")
    add = parser.add_argument
    names = list_names()
    named = f"YAML file, or a name in data/fetch: {', '.join(names)}; without it: what there is"
    add("list", nargs="?", metavar="LIST", help=named)
    add("files", nargs="*", metavar="FILE", help="files in the list to fetch; default: all")
    add("--out", type=Path, default=Path("datasets"), metavar="DIR", help="download folder")
    flags = parser.parse_args()
    if flags.list is None:
        return say(*(f"{name}: {find_list(name).about.splitlines()[0]}" for name in names))
    found = find_list(flags.list)
    known = [item.name for item in found.items]
    if wrong := [name for name in flags.files if name not in known]:
        raise UserError(f"{wrong[0]}: not in the list; it has {', '.join(known)}")
    items = [item for item in found.items if item.name in (flags.files or known)]
    say(*found.about.splitlines())
    for item in items:
        size = "of unknown size" if item.size is None else f"{item.size:,} bytes"
        say(f"  {item.url}: {size}, {f'unpacked into {item.unpack}' if item.unpack else item.path}")
    say(f"into {flags.out.absolute()}")
    try:
        flags.out.mkdir(parents=True, exist_ok=True)
        with open(flags.out / ".fetch.lock", "ab") as lock:
            files.lock(lock.fileno())
            for item in items:
                say(fetch(item, flags.out))
    except OSError as error:
        busy = isinstance(error, BlockingIOError)
        fault = f"{os_fault(error)}; choose another folder"
        reason = "another process fetches into it; wait until it ends" if busy else fault
        raise UserError(f"--out {flags.out}: cannot be written: {reason}") from error
    then = found.then.replace(OUT, f"{flags.out}/")
    say(f"{count(len(items), 'file')} there", *then.splitlines())


def fetch(item: Item, folder: Path) -> str:
    """Fetch a file into a folder, and unpack it if listed so; return a summary.

    A file with the right hash is not fetched again. A fetched archive is removed once unpacked.

    UserError: another file is in its place, or as `download` and `unpack`.
    """
    target = folder / item.path
    part, note = (target.with_name(target.name + suffix) for suffix in (PART, UNPACKED))
    is_unpacked = item.unpack is not None and note.exists() and (folder / item.unpack).is_dir()
    if is_unpacked and (item.sha256 or "") in read_text(note):
        return f"{item.name}: unpacked already; to unpack it again, delete {note}"
    target.parent.mkdir(parents=True, exist_ok=True)
    is_there = os.path.lexists(target)
    digest, done = (
        (hash_of(target), "there already") if is_there else (download(item, part), "fetched")
    )
    if item.sha256 not in (None, digest):
        raise UserError(
            f"{target} already exists with SHA-256 {digest}, but the list has {item.sha256}; "
            "move it away, or choose another folder with --out"
        )
    if item.unpack is not None:
        archive = target if is_there else part
        done += f", {count(unpack(archive, item.name, folder / item.unpack), 'file')} unpacked"
        with atomic_text_file(note) as file:
            file.write(digest)
        part.unlink(missing_ok=True)
    elif not is_there:
        os.replace(part, target)
    pin = f"; to pin it, write sha256: '{digest}' into the list" if item.sha256 is None else ""
    return f"{item.name}: {done}{pin}"


if __name__ == "__main__":
    run_command(main)
