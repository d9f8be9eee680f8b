# Runs without a framework.
import os
import pickle
import textwrap
import zipfile

from duet.utils.errors import UserError
from duet.utils.weights.load import load_weights


class Trap:
    """Pickle stores a call in its place: os.system("echo caught")."""

    def __reduce__(self):
        return os.system, ("echo caught",)


with zipfile.ZipFile(
    "trap.pt", "w"
) as file:  # the archive that torch.save writes
    data = pickle.dumps({"model": Trap()}, protocol=2)
    file.writestr("archive/data.pkl", data)
    file.writestr("archive/version", "3\n")

try:
    load_weights("trap.pt")
except UserError as error:
    print(textwrap.fill(str(error), 76))
