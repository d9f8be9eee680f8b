# Runs without a framework.
from duet.utils.comparison.statistics import verdict

# Seconds of the candidate divided by those of the reference, per epoch.
for ratios in (
    [1.10, 1.12, 1.09, 1.11],
    [0.82, 1.16, 1.06, 0.95],
    [0.85, 0.93, 0.88, 0.95],
):
    print(ratios, "in two rounds:", verdict(ratios, rounds=2))
print([0.70, 0.72], "in two rounds:", verdict([0.70, 0.72], rounds=2))
print(
    [0.70, 0.72, 0.71], "in one round:", verdict([0.70, 0.72, 0.71], rounds=1)
)
