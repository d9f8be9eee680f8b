# Runs without a framework.
from duet.utils.tasks import Part, Task

task = Task(
    name="presence",
    head="Presence",
    fitness={"accuracy": 1.0},
    report=Part("tests.presence_head:REPORT"),
)
for name, value in vars(task).items():
    if isinstance(value, Part):
        print(f"{name:12}{value or '-'}")
