# --8<-- [start:page]
# Runs without a framework.
# Numbers agree to 1e-1.
from duet.utils.project import PROJECT
from tests.conformance.judging import checks_of, promised_names


def lines(folder):
    files = (PROJECT / "backend" / folder).rglob("*.py")
    return round(
        sum(
            len(file.read_text(encoding="utf-8").splitlines())
            for file in files
        ),
        -1,
    )


print(
    "names to provide          for inference",
    len(promised_names(trains=False)),
)
print(
    "                          for training ",
    len(promised_names(trains=True)),
)
print("checks of them            for inference", len(checks_of(trains=False)))
print("                          for training ", len(checks_of(trains=True)))
for folder in ("contract", "torch", "oneflow", "onnx"):
    print(f"lines of {'backend/' + folder:30}{lines(folder):6}")
# --8<-- [end:page]

values = {
    "inference": len(promised_names(False)),
    "training": len(promised_names(True)),
}
