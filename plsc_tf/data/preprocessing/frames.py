"""Which part of an image a network sees, and at which size.

A frame has four functions. `prepare` is what training can do before anything random;
`decide` and `train` are its random part; `evaluate` has none. Images are uint8
[h, w, 3] of any size; the results of `train` and `evaluate` have the frame's size.
"""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from plsc_tf.data import images
from plsc_tf.data.augmentation import decisions
from plsc_tf.data.augmentation.options import Augmentation

# Columns of random numbers, see `augmentation.decisions`.
_SCALE, _TOP, _LEFT = 6, 7, 31


@dataclasses.dataclass(frozen=True)
class Stretch:
    """The whole image, resized to the size; the aspect ratio is not kept.

    Args:
        size: (height, width) in pixels; so for all frames.
    """

    size: tuple[int, int]

    @property
    def kept_size(self) -> tuple[int, int]:
        """Size at which a cache keeps images before anything random happens."""
        return self.size

    def own_part(self, options: Augmentation | None) -> Augmentation | None:
        """The options that are left once the frame has taken those it serves."""
        return options

    def prepare(self, image: tf.Tensor) -> tf.Tensor:
        """The part of training's work that is the same every time."""
        return images.resize(image, self.size)

    def decide(self, chance: tf.Tensor, options: Augmentation | None) -> dict:
        """Decisions [n, ...] for a block; chance is float [n, 32]."""
        del chance, options
        return {}

    def train(self, image: tf.Tensor, decision: dict) -> tf.Tensor:
        """The random part, for a prepared image and one row of decisions."""
        del decision
        return images.resize(image, self.size)

    def evaluate(self, image: tf.Tensor) -> tf.Tensor:
        """What evaluation sees of an image."""
        return images.resize(image, self.size)

    def keep(self, image: tf.Tensor) -> tf.Tensor:
        """What a cache keeps of an image: `kept_size`, enough for `train`."""
        return images.resize(image, self.kept_size)


class CropOrPad(Stretch):
    """The middle of the image, surrounded by black where it is too small (lenet)."""

    def prepare(self, image):
        """See `Stretch.prepare`."""
        return self.evaluate(image)

    def train(self, image, decision):
        """See `Stretch.train`."""
        del decision
        return image

    def evaluate(self, image):
        """See `Stretch.evaluate`."""
        if tuple(image.shape[:2]) == self.size:
            return image
        same = tf.reduce_all(tf.equal(tf.shape(image), [*self.size, 3]))
        cropped = tf.cond(
            same,
            lambda: image,
            lambda: tf.image.resize_with_crop_or_pad(image, *self.size),
        )
        cropped.set_shape([*self.size, 3])
        return cropped

    def keep(self, image):
        """See `Stretch.keep`."""
        return self.evaluate(image)


class PadAndCrop(CropOrPad):
    """A random part of the image with 4 black pixels around it (cifarnet)."""

    padding = 4

    def prepare(self, image):
        """See `Stretch.prepare`."""
        return image

    def decide(self, chance, options):
        """See `Stretch.decide`."""
        del options
        return {"place": tf.stack([chance[:, _TOP], chance[:, _LEFT]], axis=1)}

    def train(self, image, decision):
        """See `Stretch.train`."""
        # An image that is too small even so gets more black around it.
        if image.shape.is_fully_defined():
            lacking = [
                max(want - have, 0)
                for want, have in zip(self.size, image.shape[:2], strict=True)
            ]
        else:
            shape = tf.shape(image)[:2]
            lacking = tf.unstack(tf.maximum(tf.constant(self.size) - shape, 0))
        around = [
            [self.padding + each // 2, self.padding + each - each // 2]
            for each in lacking
        ]
        image = tf.pad(image, [*around, [0, 0]])
        room = tf.shape(image)[:2] - self.size + 1
        start = tf.cast(decision["place"] * tf.cast(room, tf.float32), tf.int32)
        return tf.slice(image, tf.concat([start, [0]], 0), [*self.size, 3])


class ScaleCrop(Stretch):
    """A random part at a random scale; the middle for evaluation (vgg).

    The shorter side becomes 256 to 512 pixels for a network's 224, and in proportion
    for other sizes (Simonyan & Zisserman 2014, arXiv:1409.1556, 3.1).
    """

    smallest, largest = 256 / 224, 512 / 224

    @property
    def kept_size(self):
        """See `Stretch.kept_size`."""
        return tuple(round(side * self.smallest) for side in self.size)

    def prepare(self, image):
        """See `Stretch.prepare`."""
        return image

    def decide(self, chance, options):
        """See `Stretch.decide`."""
        del options
        columns = [chance[:, column] for column in (_SCALE, _TOP, _LEFT)]
        return {"place": tf.stack(columns, axis=1)}

    def train(self, image, decision):
        """See `Stretch.train`."""
        scale, top, left = tf.unstack(decision["place"])
        shape = tf.cast(tf.shape(image)[:2], tf.float32)
        shorter = tf.reduce_min(shape)
        scaled = self.smallest + scale * (self.largest - self.smallest)
        wanted = tf.constant([float(side) for side in self.size])
        box = wanted / max(self.size) * shorter / scaled
        return _cropped(image, box, (top, left), self.size)

    def evaluate(self, image):
        """See `Stretch.evaluate`."""
        return _middle(image, max(self.size) * self.smallest, self.size)

    def keep(self, image):
        """See `Stretch.keep`."""
        return _middle(image, max(self.kept_size), self.kept_size)


class AreaCrop(ScaleCrop):
    """A random part by area and aspect ratio; 0.875 of the sides for evaluation.

    The crop of inception (Szegedy et al. 2014, arXiv:1409.4842, 6): it serves the
    option `crop_scale`, from the image as it is stored.
    """

    central = 0.875

    def own_part(self, options):
        """See `Stretch.own_part`."""
        return options and dataclasses.replace(options, crop_scale=None)

    def decide(self, chance, options):
        """See `Stretch.decide`."""
        low, high = (options and options.crop_scale) or (1.0, 1.0)
        probability = options.crop_probability if options else 0.0
        drawn = chance[:, decisions.AREA]
        cropped = drawn < probability
        area = low + drawn / max(probability, 1e-9) * (high - low)
        log_ratio = (2 * chance[:, decisions.RATIO] - 1) * math.log(4 / 3)
        # An area and a ratio of 0 stand for the whole image.
        columns = [
            tf.where(cropped & (high < 1 or low < 1), area, 0.0),
            tf.exp(log_ratio),
            chance[:, decisions.CROP_Y],
            chance[:, decisions.CROP_X],
        ]
        return {"place": tf.stack(columns, axis=1)}

    def train(self, image, decision):
        """See `Stretch.train`."""
        area, ratio, top, left = tf.unstack(decision["place"])
        shape = tf.cast(tf.shape(image)[:2], tf.float32)
        pixels = area * tf.reduce_prod(shape)
        box = tf.sqrt(tf.stack([pixels / ratio, pixels * ratio]))
        box = tf.where(area > 0, box, shape)
        return _cropped(image, box, (top, left), self.size)

    def evaluate(self, image):
        """See `Stretch.evaluate`."""
        middle = tf.image.central_crop(image, self.central)
        return images.resize(tf.ensure_shape(middle, [None, None, 3]), self.size)


def _cropped(image, box, place, size):
    """Cuts out a box at a random place and resizes it.

    Args:
        image: uint8 [h, w, 3].
        box: float [2], height and width in pixels, rounded and at most the image.
        place: two uniform numbers, where in the room that is left.
        size: (height, width) of the result.
    """
    shape = tf.shape(image)[:2]
    box = tf.clip_by_value(tf.cast(tf.round(box), tf.int32), 1, shape)
    room = tf.cast(shape - box + 1, tf.float32)
    start = tf.cast(tf.stack(place) * room, tf.int32)
    part = tf.slice(image, tf.concat([start, [0]], 0), tf.concat([box, [3]], 0))
    return images.resize(tf.ensure_shape(part, [None, None, 3]), size)


def _middle(image, shorter, size):
    """Resizes the shorter side, keeping the aspect ratio, and cuts out the middle."""
    shape = tf.cast(tf.shape(image)[:2], tf.float32)
    wanted = tf.round(shape * (float(shorter) / tf.reduce_min(shape)))
    wanted = tf.maximum(tf.cast(wanted, tf.int32), size)
    resized = tf.image.resize(image, wanted, antialias=True)
    top, left = tf.unstack((wanted - size) // 2)
    part = tf.slice(resized, [top, left, 0], [*size, 3])
    return tf.cast(tf.clip_by_value(tf.round(part), 0, 255), tf.uint8)
