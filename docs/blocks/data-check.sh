# Runs without a framework.
# Shows lines with split , train   , val   , Shorter, problems, Images that, Objects , Boxes, labels/, images/val, -> Copy, -> Correct, -> A, the second, worth, train with.
duet check --data spoiled --img 320 --fix corrected
