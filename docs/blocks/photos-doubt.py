# Runs on torch and oneflow.
# --8<-- [start:page]
import duet

detector = duet.load("runs/train/exp/weights/best.safetensors")
doubts = {}
for result in detector.stream("new", conf=0.1):
    # 1 for a score of 0.5, 0 for one of 0 or 1: where is it unsure?
    unsure = 1 - abs(2 * result.scores - 1)
    doubts[result.frame.source] = float(unsure.sum())
first = sorted(doubts, key=doubts.get, reverse=True)[:10]
print(f"of {len(doubts)} new photographs, label these {len(first)} first")
# --8<-- [end:page]
