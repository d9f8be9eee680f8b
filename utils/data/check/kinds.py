"""The kinds of things that the check finds: what each means, and what to do about it.

Before: the modules beside this one find them. After: `summary.py`, `check_page.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of finding."""

    title: str
    meaning: str  # what it does to a training
    remedy: str
    is_problem: bool = True  # to be corrected; else worth knowing
    is_mended: bool = False  # --fix corrects it, at least where it can be decided


class Finding(NamedTuple):
    """One thing found."""

    kind: str  # a key of KINDS
    split: str  # "" where it is of no split
    where: str  # the file, and the line or object
    text: str  # what is found there
    image: int = -1  # number of the image among all; -1 where there is none
    other: int = -1  # number of the image that it is a copy of
    box_xyxy_norm: Sequence[float] = ()  # of the object in question, from 0 to 1; or empty


# In the order in which they are shown: what costs most comes first.
KINDS = {
    "same_images": Kind(
        "One set of images in two splits",
        "The figures of a validation say nothing about images that training has not seen.",
        "Give validation images of its own; --split 0.8 sets some apart if the dataset has no "
        "split for validation.",
    ),
    "leak": Kind(
        "Images that are in two splits",
        "The file is in both. Validation then measures images that the model was trained on, and "
        "its figures are too good.",
        "Delete one of two files, or take one that is named twice out of one list.",
    ),
    "near_leak": Kind(
        "Images that look alike, in two splits",
        "Frames of one video, an image stored twice, or augmented copies of one: the figures of "
        "the validation are too good.",
        "Move both to one side; --split 0.8 does so when it draws the split.",
    ),
    "two_classes": Kind(
        "Images that are in the folders of two classes",
        "They are equal, or look alike. A model cannot learn two classes for one image.",
        "Look at both, and delete the one in the wrong folder.",
    ),
    "missing_image": Kind(
        "Missing images",
        "They are named by a list or an annotation and are not there. Training does without them.",
        "Put them there, or take them off the list.",
    ),
    "unreadable_image": Kind(
        "Images that cannot be read",
        "Training leaves them out.",
        "Export them again, as JPEG or PNG.",
    ),
    "truncated_image": Kind(
        "Truncated or damaged images",
        "A part of the file is missing or changed. Training leaves them out, or stops at them.",
        "Copy them again from where they came.",
    ),
    "image_size": Kind(
        "Images that are too small or too large",
        "Training leaves them out.",
        "Make them another size, or raise --max-pixels.",
    ),
    "broken_label": Kind(
        "Labels that cannot be read",
        "Training leaves the whole image out.",
        "Correct them. A line of a label file is: class, centre x and y, width, height, from 0 to "
        "1; or a class and a polygon.",
    ),
    "other_shape": Kind(
        "Annotations of an image of another shape",
        "Training leaves the image out: its boxes would not lie on the objects.",
        "Find the image that was labelled, or label this one again.",
    ),
    "unknown_class": Kind(
        "Objects of an unknown class",
        "The dataset has no class of that number. Training leaves the whole image out.",
        "Correct the class, or add its name to `names`; --fix drops them.",
        is_mended=True,
    ),
    "out_of_range": Kind(
        "Boxes far outside the image",
        "A coordinate is not a number from 0 to 1 (it may be in pixels), or the box reaches far "
        "outside.",
        "Label the image again, or correct the export; --fix clips boxes that overlap the image.",
        is_mended=True,
    ),
    "zero_area": Kind(
        "Objects without an area",
        "Because of such a line in a label file, training leaves the whole image out. In other "
        "formats it leaves out only the object.",
        "Delete them: a click in the labelling tool made them.",
        is_mended=True,
    ),
    "repeated_object": Kind(
        "Objects that are labelled twice",
        "The second of two equal objects is dropped.",
        "Delete it; the export may have been joined with itself.",
        is_mended=True,
    ),
    "lost_labels": Kind(
        "Label files without an image",
        "Their objects are not trained on.",
        "Find the image, or correct one of the two names.",
    ),
    "similar_names": Kind(
        "Class names that are nearly equal",
        "If they mean one class, its images are divided between the names, and the network must "
        "learn a difference that does not exist.",
        "Give both the same number in the labels, or in the labelling tool; if folders are the "
        "classes, move their images into one folder.",
    ),
    "repeated_image": Kind(
        "Images that are there twice",
        "Training shows such an image once for each copy.",
        "Delete the copies; if a list names a file twice, remove one of the two lines.",
    ),
    "overshoot": Kind(
        "Boxes that reach over the edge by a little",
        "By at most a hundredth of the side, because tools round. They are clipped; an image whose "
        "labels have a coordinate above 1.0001 is left out.",
        "Nothing needs to be done; --fix clips them in a copy.",
        is_problem=False,
        is_mended=True,
    ),
    "alike": Kind(
        "Images that look alike, in one split",
        "Frames of one video, or one scene twice: training shows the scene once for each of them.",
        "Look at them, and delete those that show nothing new.",
        is_problem=False,
    ),
    "turned": Kind(
        "Images that are turned by EXIF",
        "Training turns them upright, as a browser does. A labelling tool that ignores EXIF does "
        "not, and its boxes do not lie on the objects.",
        "Check that the boxes below lie on the objects.",
        is_problem=False,
    ),
    "no_label_file": Kind(
        "Images without a label file",
        "They count as images that show no object.",
        "Make sure that they show none, or label them.",
        is_problem=False,
    ),
    "no_outline": Kind(
        "Objects without an outline, while others have one",
        "If masks are learned, their boxes are used as their masks. Detection uses only the boxes.",
        "Label their outlines if masks are to be learned.",
        is_problem=False,
    ),
    "unused_image": Kind(
        "Images that the dataset does not name",
        "They are in a folder with images of the dataset, but no split, list or annotation names "
        "them.",
        "Label them, or put them on the list, if they were forgotten.",
        is_problem=False,
    ),
    "unused_class": Kind(
        "Classes that no image shows",
        "The network has outputs for them that it never learns.",
        "Take the names out if they are the last ones, or label some; if folders are the "
        "classes, repair their images.",
        is_problem=False,
    ),
    "not_in_val": Kind(
        "Classes that validation does not show",
        "The figures say nothing about them.",
        "Give some images of them to validation.",
        is_problem=False,
    ),
    "not_in_train": Kind(
        "Classes that only validation shows",
        "The network cannot find what it has never seen.",
        "Give some images of them to training.",
    ),
}  # fmt: skip
