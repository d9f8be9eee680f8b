# Runs without a framework.
# Shows lines with problems, worth, page:.
duet check --data shapes --img 320
