"""What is neither a model nor a framework; a folder is a subject.

Flat lies what several of them share: errors, boxes, detections. Each folder imports only what
stands before it; `tests/structure/test_imports.py` holds that none imports back.

files            YAML, JSON and text read strictly, written whole; where the project lies
screen           what a person sees while a command runs: lines, progress, text made printable
setup            environments, made before anything is installed
data/image       bytes of an image -> pixels; letterboxes
data/augment     random changes to training samples: a new augmentation
cli              flags and hyper-parameters -> checked settings: a new flag
processes        those that do one job: started, joined, watched, suspended, ended
data/records     many images in one file; its command packs and unpacks datasets
data/shapes      the built-in dataset
data/sources     --data -> samples with checked labels: a new label format
data/loading     samples -> batches, in worker processes, with caches
evaluation       NMS, COCO's metric, the figures of old logs
report           what is shown and drawn: tables, results.csv, plots
state            a run's folder, its checkpoints, and where it goes on
weights          files of other programs -> checkpoints
comparison       compare.py's parts
serve            HTTP requests with images -> the process that predicts -> answers
"""
