# Runs without a framework.
# Shows lines with split , train   , val   , class  , circle , square , triangle , star , cross , Shorter, try --hyp, problems, Objects , labels/, -> Correct, -> Delete, worth, train with.
duet check --data photos --split 0.8 --img 160 --fix corrected
