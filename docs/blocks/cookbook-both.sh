# Runs without a framework.
# Needs shapes.
# Shows lines with split , train , val , 0 , 1 , 2 .
duet check --data both.yaml --img 64
