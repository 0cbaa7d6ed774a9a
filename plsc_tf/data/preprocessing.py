"""Preprocessing by name: from a stored image to what a network is fed.

`build("face", image_size=(112, 112))` makes one; `names()` lists them.
"""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from plsc_tf.data import augmentation as random_changes
from plsc_tf.data import images
from plsc_tf.data.augmentation import NUM_CHANCES, Augmentation, decisions
from plsc_tf.data.request import check_image_size
from plsc_tf.hints import did_you_mean

# Columns of random numbers, see `augmentation.decisions`.
_SCALE, _TOP, _LEFT = 6, 7, 31


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """From a stored image to uint8 [height, width, 3], for training or evaluation.

    In tf.data, for a block of n images:

        decisions = preprocessing.decide(chance)          # once per block
        image = preprocessing.prepare(data)               # for each image
        image = preprocessing.apply(image, decision)      # its row of the decisions

    This one takes the whole image, resized without keeping its aspect ratio; others
    override which part of it training and evaluation see.

    Args:
        name: for messages.
        image_size: (height, width) of the result.
        augmentation: what may happen to it at random, or None.
    """

    name: str
    image_size: tuple[int, int]
    augmentation: Augmentation | None = None

    # Columns of the random numbers that place a crop; () if nothing is cropped at
    # random, so that training resizes an image before anything random happens.
    _columns = ()

    @property
    def kept_size(self) -> tuple[int, int]:
        """(height, width) of what `keep` returns."""
        return self.image_size

    @property
    def stretches(self) -> bool:
        """Whether the whole image is used, so that only its size matters."""
        return type(self) is Preprocessing

    def prepare(self, image: tf.Tensor) -> tf.Tensor:
        """Decodes; resizes where that is the same every time.

        Args:
            image: string scalar or an array, see `images.to_rgb`.

        Returns:
            uint8 [h, w, 3], of a size that `apply` takes.
        """
        pixels = images.to_rgb(image)
        return pixels if self._columns else self._frame(pixels)

    def decide(self, chance: tf.Tensor) -> dict[str, tf.Tensor]:
        """Decides at random what happens to each image of a block.

        Args:
            chance: float32 [n, 32], uniform in [0, 1).

        Returns:
            dict of tensors [n, ...]; an empty one when nothing is random.
        """
        made = random_changes.decide(chance, self.augmentation, self.image_size)
        if self._columns:
            columns = [chance[:, column] for column in self._columns]
            made["place"] = tf.stack(columns, axis=1)
        return made

    def apply(self, image: tf.Tensor, decision: dict[str, tf.Tensor]) -> tf.Tensor:
        """Does to a prepared (or kept) image what was decided for it.

        Args:
            image: uint8 [h, w, 3] from `prepare` or `keep`.
            decision: a row of what `decide` returned.

        Returns:
            uint8 [height, width, 3].
        """
        image = self._crop(image, decision)
        return random_changes.apply(image, decision, self.augmentation)

    def augment(self, image: tf.Tensor, chance: tf.Tensor) -> tf.Tensor:
        """`decide` and `apply` for a single image; chance is float32 [32]."""
        chance = tf.reshape(chance, [1, NUM_CHANCES])
        return self.apply(image, random_changes.first_of(self.decide(chance)))

    def keep(self, image: tf.Tensor) -> tf.Tensor:
        """Decodes to `kept_size`: what a cache keeps for `apply`."""
        return self._kept(images.to_rgb(image))

    def evaluate(self, image: tf.Tensor) -> tf.Tensor:
        """Decodes and frames without anything random: uint8 [height, width, 3]."""
        return self._frame(images.to_rgb(image))

    def _frame(self, image):
        """Returns the part that evaluation sees, in its size."""
        return images.resize(image, self.image_size)

    def _crop(self, image, decision):
        """Returns the part that training sees, in its size."""
        del decision
        return self._frame(image)

    def _kept(self, image):
        return self._frame(image)


class CropOrPad(Preprocessing):
    """The middle of the image, surrounded by black where it is too small (lenet)."""

    def _frame(self, image):
        size = self.image_size
        if tuple(image.shape[:2]) == size:
            return image
        cropped = tf.cond(
            tf.reduce_all(tf.equal(tf.shape(image), [*size, 3])),
            lambda: image,
            lambda: tf.image.resize_with_crop_or_pad(image, *size),
        )
        return tf.ensure_shape(cropped, [*size, 3])


class PadAndCrop(CropOrPad):
    """A random part of the image with 4 black pixels around it (cifarnet)."""

    padding = 4
    _columns = (_TOP, _LEFT)

    def _crop(self, image, decision):
        # An image that is too small even so gets more black around it.
        lacking = tf.maximum(tf.constant(self.image_size) - tf.shape(image)[:2], 0)
        before = self.padding + lacking // 2
        after = 2 * self.padding + lacking - before
        around = tf.stack([before, after], axis=1)
        image = tf.pad(image, tf.pad(around, [[0, 1], [0, 0]]))
        room = tf.shape(image)[:2] - self.image_size + 1
        start = tf.cast(decision["place"] * tf.cast(room, tf.float32), tf.int32)
        return tf.slice(image, tf.concat([start, [0]], 0), [*self.image_size, 3])


class ScaleCrop(Preprocessing):
    """A random part at a random scale; the middle for evaluation (vgg).

    The shorter side becomes 256 to 512 pixels for a network's 224, and in proportion
    for other sizes (Simonyan & Zisserman 2014, arXiv:1409.1556, 3.1).
    """

    smallest, largest = 256 / 224, 512 / 224
    _columns = (_SCALE, _TOP, _LEFT)

    @property
    def kept_size(self):
        """See `Preprocessing.kept_size`."""
        return tuple(round(side * self.smallest) for side in self.image_size)

    def _crop(self, image, decision):
        scale, top, left = tf.unstack(decision["place"])
        shape = tf.cast(tf.shape(image)[:2], tf.float32)
        shorter = tf.reduce_min(shape)
        scaled = self.smallest + scale * (self.largest - self.smallest)
        wanted = tf.constant([float(side) for side in self.image_size])
        box = wanted / max(self.image_size) * shorter / scaled
        return _cropped(image, box, (top, left), self.image_size)

    def _frame(self, image):
        return _middle(image, max(self.image_size) * self.smallest, self.image_size)

    def _kept(self, image):
        return _middle(image, max(self.kept_size), self.kept_size)


class AreaCrop(ScaleCrop):
    """A random part by area and aspect ratio; 0.875 of the sides for evaluation.

    The crop of inception (Szegedy et al. 2014, arXiv:1409.4842, 6): it serves the
    option `crop_scale`, from the image as it is stored.
    """

    central = 0.875

    def decide(self, chance):
        """See `Preprocessing.decide`."""
        options = self.augmentation or Augmentation(crop_probability=0.0)
        low, high = options.crop_scale or (1.0, 1.0)
        drawn = chance[:, decisions.AREA]
        cropped = drawn < options.crop_probability
        area = low + drawn / max(options.crop_probability, 1e-9) * (high - low)
        log_ratio = (2 * chance[:, decisions.RATIO] - 1) * math.log(4 / 3)
        # An area and a ratio of 0 stand for the whole image.
        columns = [
            tf.where(cropped & (low < 1), area, 0.0),
            tf.exp(log_ratio),
            chance[:, decisions.CROP_Y],
            chance[:, decisions.CROP_X],
        ]
        others = dataclasses.replace(options, crop_scale=None)
        made = random_changes.decide(chance, others, self.image_size)
        return made | {"place": tf.stack(columns, axis=1)}

    def _crop(self, image, decision):
        area, ratio, top, left = tf.unstack(decision["place"])
        shape = tf.cast(tf.shape(image)[:2], tf.float32)
        pixels = area * tf.reduce_prod(shape)
        box = tf.sqrt(tf.stack([pixels / ratio, pixels * ratio]))
        box = tf.where(area > 0, box, shape)
        return _cropped(image, box, (top, left), self.image_size)

    def _frame(self, image):
        middle = tf.image.central_crop(image, self.central)
        return images.resize(tf.ensure_shape(middle, [None, None, 3]), self.image_size)


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


# Class and random changes of each: PLSC's for faces, the others as TensorFlow's Slim
# defines them; docs/preprocessing.md has the differences.
_NAMED = {
    "none": (Preprocessing, None),
    "face": (Preprocessing, Augmentation(flip=0.5)),
    "cifarnet": (
        PadAndCrop,
        Augmentation(flip=0.5, brightness=63, contrast=(0.2, 1.8)),
    ),
    "inception": (
        AreaCrop,
        Augmentation(
            flip=0.5,
            crop_scale=(0.05, 1.0),
            brightness=32,
            contrast=(0.5, 1.5),
            saturation=(0.5, 1.5),
            hue=0.2,
        ),
    ),
    "lenet": (CropOrPad, None),
    "vgg": (ScaleCrop, Augmentation(flip=0.5)),
}


def build(
    name: str,
    image_size: tuple[int, int],
    augmentation: Augmentation | str | None = "own",
) -> Preprocessing:
    """Makes a preprocessing by name.

    Args:
        name: one of `names()`.
        image_size: (height, width) of the results, in pixels.
        augmentation: random changes instead of the preprocessing's own; None for
            none at all (inception and vgg still choose their crops at random).

    Raises:
        ValueError: there is no preprocessing of this name.
    """
    own = own_augmentation(name)
    chosen = own if augmentation == "own" else Augmentation.named(augmentation)
    return _NAMED[name][0](name, check_image_size(image_size), chosen)


def names() -> list[str]:
    """Names of the preprocessings, sorted."""
    return sorted(_NAMED)


def own_augmentation(name: str) -> Augmentation | None:
    """What a preprocessing changes at random when nothing else is asked for."""
    if name in _NAMED:
        return _NAMED[name][1]
    hint = did_you_mean(str(name), names())
    raise ValueError(
        f"There is no preprocessing {name!r}.{hint} Known: {', '.join(names())}."
    )
