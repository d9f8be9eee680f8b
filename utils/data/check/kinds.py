"""The kinds of things that the check finds, and what to do about each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of finding."""

    title: str
    advice: str  # what it does to a training, and the next step
    is_problem: bool = True  # to be corrected; else worth knowing


class Finding(NamedTuple):
    """One thing found."""

    kind: str  # a key of KINDS
    split: str  # "" where it is of no split
    where: str  # the file, and the line or object
    text: str  # what is found there
    image: int = -1  # number of the image among all; -1 where there is none
    other: int = -1  # number of the image that it is a copy of
    box_xyxy_norm: Sequence[float] = ()  # of the object in question, from 0 to 1; or empty


# In the order in which they are shown: what costs most comes first. Title and advice.
_PROBLEMS = {
    "same_images": ("One set of images in two splits",
        "Validation shows nothing new: give it other images, or --split 0.8 and no val"),
    "leak": ("Images that are in two splits",
        "The figures are too good: delete one of two files, or take one that is named twice out of "
        "one list"),
    "near_leak": ("Images that look alike, in two splits",
        "The figures are too good: move both to one side, as --split 0.8 does"),
    "two_classes": ("Images that are in the folders of two classes",
        "No model can learn both: delete the one in the wrong folder"),
    "missing_image": ("Missing images",
        "Training does without them: put them there, or take them off the list"),
    "unreadable_image": ("Images that cannot be read",
        "Training leaves them out: export them again, as JPEG or PNG"),
    "truncated_image": ("Truncated or damaged images",
        "Training leaves them out, or stops at them: copy them again from where they came"),
    "image_size": ("Images that are too small or too large",
        "Training leaves them out: make them another size, or raise --max-pixels"),
    "broken_label": ("Labels that cannot be read",
        "Training leaves the image out: a line is class, centre x and y, width, height, from 0 to "
        "1; or a class and a polygon"),
    "other_shape": ("Annotations of an image of another shape",
        "Training leaves the image out: find the image that was labelled, or label this one again"),
    "unknown_class": ("Objects of an unknown class",
        "Training leaves the image out: correct the class or the dataset's names; --fix drops "
        "the object"),
    "out_of_range": ("Boxes far outside the image",
        "A coordinate may be in pixels: correct the export; --fix clips what overlaps the image"),
    "zero_area": ("Objects without an area",
        "In a label file one costs the whole image: delete them; --fix drops them"),
    "repeated_object": ("Objects that are labelled twice",
        "The second of two equal objects is dropped, by --fix too"),
    "lost_labels": ("Label files without an image",
        "Their objects are not trained on: find the image, or correct one of the two names"),
    "similar_names": ("Class names that are nearly equal",
        "If they mean one class, give it one number in the labels, or one folder"),
    "repeated_image": ("Images that are there twice",
        "Training shows each copy: delete it, or take a file that is listed twice off the list"),
    "not_in_train": ("Classes that only validation shows",
        "The network cannot find what it has never seen: give training some images of them"),
}  # fmt: skip
_NOTES = {
    "overshoot": ("Boxes that reach over the edge by a little",
        "They are clipped; a label file with a coordinate above 1.0001 costs its image, and --fix "
        "corrects it"),
    "alike": ("Images that look alike, in one split",
        "Training shows the scene once for each: delete those that show nothing new"),
    "turned": ("Images that are turned by EXIF",
        "Training turns them upright, and a labelling tool may not: look at the boxes"),
    "no_label_file": ("Images without a label file",
        "They count as images that show no object: make sure that they show none"),
    "no_outline": ("Objects without an outline, while others have one",
        "If masks are learned, their boxes are their masks: label their outlines for that"),
    "unused_image": ("Images that the dataset does not name",
        "They lie beside its images: label or list them, if they were forgotten"),
    "unused_class": ("Classes that no image shows",
        "The network never learns them: label some, or take the last names out"),
    "not_in_val": ("Classes that validation does not show",
        "The figures say nothing about them: give validation some images of them"),
}  # fmt: skip
KINDS = {name: Kind(*words) for name, words in _PROBLEMS.items()} | {
    name: Kind(*words, is_problem=False) for name, words in _NOTES.items()
}
