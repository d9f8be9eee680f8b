"""A small module of the shape of the package Albumentations, for what --albumentations asks of it.

The transforms behave as those of the same name, as far as they go; Blur is none that could be
mistaken for OpenCV's.
"""

import warnings

import numpy as np


class BasicTransform:
    def __init__(self, p=0.5, **others):
        if not 0 <= p <= 1:
            raise ValueError("1 error\np\n  a number from 0 to 1 is needed")
        if others:
            warnings.warn(f"Argument(s) {', '.join(map(repr, others))} are not valid", stacklevel=2)
        self.p = p

    def draw(self, generator):
        pass


class DualTransform(BasicTransform):
    """Also moves points (K, 2) in an image of a width."""


class Blur(BasicTransform):
    def change(self, image):
        return np.full_like(image, 7)


class InvertImg(BasicTransform):
    def change(self, image):
        return 255 - image


class ToFloat(BasicTransform):
    def change(self, image):
        return image.astype(np.float32) / 255


class GaussNoise(BasicTransform):
    def draw(self, generator):
        self.generator = generator

    def change(self, image):
        return (image + self.generator.normal(0, 20, image.shape)).clip(0, 255).astype(np.uint8)


class RandomCrop(DualTransform):
    def __init__(self, height, width, **others):
        super().__init__(**others)
        self.height, self.width = height, width

    def change(self, image):
        return image[: self.height, : self.width]

    def move(self, points, width):
        return points


class HorizontalFlip(DualTransform):
    def change(self, image):
        return image[:, ::-1]

    def move(self, points, width):
        return points * [-1, 1] + [width, 0]


class Affine(DualTransform):
    def __init__(self, translate_px, **others):
        super().__init__(**others)
        self.shift = translate_px["x"]

    def change(self, image):
        padded = np.pad(image, ((0, 0), (self.shift, 0), (0, 0)))
        return padded[:, : image.shape[1]]

    def move(self, points, width):
        return points + [self.shift, 0]


class Params:
    def __init__(self, **given):
        self.__dict__.update(given)


BboxParams = KeypointParams = Params


class Compose:
    def __init__(self, transforms, bbox_params=None, keypoint_params=None):
        self.transforms, self.limits = transforms, bbox_params

    def set_random_state(self, generator, python_generator):
        self.generator = generator

    def __call__(self, image, bboxes=None, row=None, keypoints=None, owner=None):
        for transform in self.transforms:
            if self.generator.random() >= transform.p:
                continue
            transform.draw(self.generator)
            image = np.ascontiguousarray(transform.change(image))
            if isinstance(transform, DualTransform):
                keypoints = transform.move(keypoints, image.shape[1])
                corners = transform.move(bboxes.reshape(-1, 2), image.shape[1]).reshape(-1, 2, 2)
                bboxes = np.concatenate((corners.min(axis=1), corners.max(axis=1)), axis=1)
        if bboxes is None:
            return {"image": image}
        bboxes = bboxes.clip(0, [*image.shape[1::-1]] * 2)
        width, height = (bboxes[:, 2:] - bboxes[:, :2]).T
        kept = (width >= self.limits.min_width) & (height >= self.limits.min_height)
        found = {"bboxes": bboxes[kept].tolist(), "row": row[kept].tolist()}
        return {"image": image, **found, "keypoints": keypoints, "owner": owner}
