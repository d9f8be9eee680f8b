# Runs on torch and oneflow.
# Shows lines with trained:, found:, checked:, refused:.
# --8<-- [start:page]
import duet

small = {"data": "shapes", "img": 64, "workers": 0}
run = duet.train(**small, cfg="yolov5n", weights="", epochs=1, fraction=0.1)
print("trained:", run.weights, run.epoch)
found = duet.val(run.weights, **small)
print("found:", *found.metrics)
print("checked:", duet.check("shapes").has_problems)
try:
    duet.train(data="shapes", epochs=0)
except duet.UserError as error:
    print("refused:", error)
# --8<-- [end:page]
