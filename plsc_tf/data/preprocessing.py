"""Named preprocessings, which turn stored images into a network's input.

`build("face", image_size=(112, 112))` creates one; `names()` lists all of them.
"""

import dataclasses
import math

import tensorflow as tf

from plsc_tf.data import augmentation as random_changes, images
from plsc_tf.data.augmentation import NUM_CHANCES, Augmentation, decisions
from plsc_tf.requirements import check_image_size, did_you_mean

# Columns of random numbers, see `augmentation.decisions`.
_SCALE, _TOP, _LEFT = 6, 7, 31
# Maximum aspect ratio of an image that is resized before its center is cut out.
_LONGEST = 16


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """Turns stored images into uint8 `[height, width, 3]` for training or evaluation.

    In tf.data, for a block of n images:

        decisions = preprocessing.decide(chance)          # once per block
        image = preprocessing.apply(data, decision)       # for each image

    This class uses the whole image, resized without keeping its aspect ratio.
    Subclasses override which part of it training and evaluation use.

    Args:
        name: name for messages.
        image_size: (height, width) of the result.
        augmentation: random changes during training; None for no changes.
    """

    name: str
    image_size: tuple[int, int]
    augmentation: Augmentation | None = None

    # Columns of the random numbers that place a random crop. If () there is no random
    # crop, and training resizes an image before any random change.
    _columns = ()

    @property
    def cached_size(self) -> tuple[int, int]:
        """(height, width) of the images that `decode_for_cache` returns."""
        return self.image_size

    def decide(self, chance: tf.Tensor) -> dict[str, tf.Tensor]:
        """Chooses the random changes for each image of a block.

        Args:
            chance: float32 `[n, 32]`, uniform in [0, 1).

        Returns:
            A dict of tensors `[n, ...]`; empty if nothing is random.
        """
        chosen = random_changes.decide(chance, self.augmentation, self.image_size)
        if self._columns:
            columns = [chance[:, column] for column in self._columns]
            chosen["place"] = tf.stack(columns, axis=1)
        return chosen

    def apply(self, image: tf.Tensor, decision: dict[str, tf.Tensor]) -> tf.Tensor:
        """Decodes and frames an image for training, with the chosen random changes.

        Args:
            image: string scalar or an array, see `images.to_rgb`, or the result of
                `decode_for_cache`.
            decision: the image's row of the tensors that `decide` returned.

        Returns:
            uint8 `[height, width, 3]`.
        """
        image = self._crop(images.to_rgb(image), decision)
        return random_changes.apply(image, decision, self.augmentation)

    def augment(self, image: tf.Tensor, chance: tf.Tensor) -> tf.Tensor:
        """Calls `decide` and `apply` for a single image; chance is float32 `[32]`."""
        block = self.decide(tf.reshape(chance, [1, NUM_CHANCES]))
        return self.apply(image, {name: rows[0] for name, rows in block.items()})

    def decode_for_cache(self, image: tf.Tensor) -> tf.Tensor:
        """Decodes an image to `cached_size`, for a cache; `apply` takes the result."""
        return self._frame(images.to_rgb(image))

    def evaluate(self, image: tf.Tensor) -> tf.Tensor:
        """Decodes and frames an image for evaluation: uint8 `[height, width, 3]`."""
        return self._frame(images.to_rgb(image))

    def _frame(self, image):
        """Returns the part of the image that evaluation uses, resized."""
        return images.resize(image, self.image_size)

    def _crop(self, image, decision):
        """Returns the part of the image that training uses, resized."""
        return self._frame(image)


class CropOrPad(Preprocessing):
    """Uses the center of the image, padded with black if it is too small (lenet)."""

    def _frame(self, image):
        cropped = tf.image.resize_with_crop_or_pad(image, *self.image_size)
        return tf.ensure_shape(cropped, [*self.image_size, 3])


class PadAndCrop(CropOrPad):
    """Crops at random after padding with 4 black pixels on each side (cifarnet)."""

    padding = 4
    _columns = (_TOP, _LEFT)

    def _crop(self, image, decision):
        # An image smaller than the output size gets more padding.
        lacking = tf.maximum(tf.constant(self.image_size) - tf.shape(image)[:2], 0)
        before = self.padding + lacking // 2
        around = tf.stack([before, 2 * self.padding + lacking - before], axis=1)
        image = tf.pad(image, tf.pad(around, [[0, 1], [0, 0]]))
        room = tf.shape(image)[:2] - self.image_size + 1
        start = tf.cast(decision["place"] * tf.cast(room, tf.float32), tf.int32)
        return tf.slice(image, tf.concat([start, [0]], 0), [*self.image_size, 3])


class ScaleCrop(Preprocessing):
    """Crops at random at a random scale; evaluation uses the center (vgg).

    For a 224-pixel input, the shorter side is scaled to 256 to 512 pixels, and in
    proportion for other sizes (Simonyan & Zisserman 2014, arXiv:1409.1556, 3.1).
    """

    smallest, largest = 256 / 224, 512 / 224
    _columns = (_SCALE, _TOP, _LEFT)

    @property
    def cached_size(self):
        """See `Preprocessing.cached_size`."""
        return tuple(round(side * self.smallest) for side in self.image_size)

    def _crop(self, image, decision):
        scale, top, left = tf.unstack(decision["place"])
        shorter = tf.cast(tf.reduce_min(tf.shape(image)[:2]), tf.float32)
        scaled = self.smallest + scale * (self.largest - self.smallest)
        wanted = tf.constant([float(side) for side in self.image_size])
        box = wanted / max(self.image_size) * shorter / scaled
        return _cropped(image, box, (top, left), self.image_size)

    def _frame(self, image):
        return _middle(image, max(self.image_size) * self.smallest, self.image_size)

    def decode_for_cache(self, image):
        """See `Preprocessing.decode_for_cache`."""
        size = self.cached_size
        return _middle(images.to_rgb(image), max(size), size)


class AreaCrop(ScaleCrop):
    """Crops a random area with a random aspect ratio (inception).

    This is the crop of Szegedy et al. 2014, arXiv:1409.4842, section 6. It implements
    the option `crop_scale`, but crops the image at its stored size. Evaluation uses
    the central 0.875 of each side.
    """

    central = 0.875

    def decide(self, chance):
        """See `Preprocessing.decide`."""
        options = self.augmentation or Augmentation()
        # An area of 0 means the whole image.
        low, high = options.crop_scale or (0.0, 0.0)
        area = low + chance[:, decisions.AREA] * (high - low)
        log_ratio = (2 * chance[:, decisions.RATIO] - 1) * math.log(4 / 3)
        position = chance[:, decisions.CROP_Y], chance[:, decisions.CROP_X]
        columns = [area, tf.exp(log_ratio), *position]
        others = dataclasses.replace(options, crop_scale=None)
        chosen = random_changes.decide(chance, others, self.image_size)
        return chosen | {"place": tf.stack(columns, axis=1)}

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
    """Cuts out a box at a random position and resizes it.

    Args:
        image: uint8 `[h, w, 3]`.
        box: float `[2]`, height and width in pixels; rounded and limited to the image.
        place: two uniform random numbers that choose the vertical and the horizontal
            position.
        size: (height, width) of the result.
    """
    shape = tf.shape(image)[:2]
    box = tf.clip_by_value(tf.cast(tf.round(box), tf.int32), 1, shape)
    start = tf.cast(tf.stack(place) * tf.cast(shape - box + 1, tf.float32), tf.int32)
    part = tf.slice(image, tf.concat([start, [0]], 0), tf.concat([box, [3]], 0))
    return images.resize(tf.ensure_shape(part, [None, None, 3]), size)


def _middle(image, shorter, size):
    """Resizes so that the shorter side is `shorter` and cuts out the center."""
    # The ends of a very long image, which would take gigabytes, are cut off first.
    shape = tf.shape(image)[:2]
    kept = tf.minimum(shape, _LONGEST * tf.reduce_min(shape))
    start = tf.concat([(shape - kept) // 2, [0]], 0)
    image = tf.slice(image, start, [*tf.unstack(kept), 3])
    shape = tf.cast(kept, tf.float32)
    wanted = tf.round(shape * (float(shorter) / tf.reduce_min(shape)))
    wanted = tf.maximum(tf.cast(wanted, tf.int32), size)
    resized = tf.image.resize(image, wanted, antialias=True)
    top, left = tf.unstack((wanted - size) // 2)
    return images.to_uint8(tf.slice(resized, [top, left, 0], [*size, 3]))


# Class and augmentation of each preprocessing. "face" is PLSC's; most others follow
# TensorFlow's Slim, and docs/preprocessing.md lists the differences.
_CIFARNET = Augmentation(flip=0.5, brightness=63, contrast=(0.2, 1.8))
_INCEPTION = Augmentation(
    flip=0.5,
    crop_scale=(0.05, 1.0),
    brightness=32,
    contrast=(0.5, 1.5),
    saturation=(0.5, 1.5),
    hue=0.2,
)
_NAMED = {
    "none": (Preprocessing, None),
    "face": (Preprocessing, Augmentation(flip=0.5)),
    "cifarnet": (PadAndCrop, _CIFARNET),
    "inception": (AreaCrop, _INCEPTION),
    "lenet": (CropOrPad, None),
    "vgg": (ScaleCrop, Augmentation(flip=0.5)),
}


def build(
    name: str,
    image_size: tuple[int, int],
    augmentation: Augmentation | str | None = "own",
) -> Preprocessing:
    """Creates a preprocessing by name.

    Args:
        name: one of `names()`.
        image_size: (height, width) of the results, in pixels.
        augmentation: random changes that replace the preprocessing's own ("own"), or
            the name of the preprocessing that has them; None disables them (random
            crops of cifarnet and vgg remain).

    Raises:
        ValueError: there is no preprocessing with this name.
    """
    own = own_augmentation(name)
    if augmentation == "own":
        augmentation = own
    elif not (augmentation is None or isinstance(augmentation, Augmentation)):
        augmentation = own_augmentation(augmentation)
    return _NAMED[name][0](name, check_image_size(image_size), augmentation)


def names() -> list[str]:
    """Returns the sorted names of the preprocessings."""
    return sorted(_NAMED)


def own_augmentation(name: str) -> Augmentation | None:
    """Returns a preprocessing's own augmentation, which is its default."""
    if name in _NAMED:
        return _NAMED[name][1]
    hint = did_you_mean(str(name), names())
    raise ValueError(
        f"There is no preprocessing {name!r}.{hint} Known: {', '.join(names())}."
    )
