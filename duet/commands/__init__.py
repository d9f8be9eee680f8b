"""The commands: links to the top-level scripts, or these themselves where links are missing."""

import os

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if not os.path.isdir(os.path.join(FOLDER, "utils")):  # as in duet/__init__.py
    __path__.insert(0, os.path.dirname(FOLDER))  # first, as a link may be a text file, train.py
