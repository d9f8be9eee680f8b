# Runs without a framework.
# Needs shapes.
import sys

import data_mistakes  # noqa: F401

from duet.utils.data.check.__main__ import main

sys.argv = ["check", "--data", "shapes/shapes.yaml", "--img", "64", "--fix", "corrected"]
try:
    main()
except SystemExit as stopped:
    print(f"exit code {stopped.code}")
