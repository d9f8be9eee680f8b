# Runs on torch and oneflow.
# Numbers agree to 2e-2.
python -m benchmarks.ring --ranks 2 --mb 1 4 8
