# Runs without a framework.
# Shows lines with split , train   , val   , Shorter, problems, Images that, Objects , Boxes, labels/, images/val, -> Copy, -> Correct, -> Export, the second, worth, train with.
duet check --data spoiled --img 320 --fix corrected
