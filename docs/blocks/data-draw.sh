# Runs without a framework.
# Shows lines with problems, worth.
duet check --data shapes --img 320
