"""The preprocessings, by name."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from plsc_tf.data import augmentation as random_changes
from plsc_tf.data import images
from plsc_tf.data.augmentation import NUM_CHANCES, Augmentation
from plsc_tf.data.preprocessing import frames
from plsc_tf.data.request import check_image_size
from plsc_tf.hints import did_you_mean

# Frame and random changes of each: PLSC's for faces, the others as TensorFlow's Slim
# defines them; docs/preprocessing.md has the differences.
_NAMED = {
    "none": (frames.Stretch, None),
    "face": (frames.Stretch, Augmentation(flip=0.5)),
    "cifarnet": (
        frames.PadAndCrop,
        Augmentation(flip=0.5, brightness=63, contrast=(0.2, 1.8)),
    ),
    "inception": (
        frames.AreaCrop,
        Augmentation(
            flip=0.5,
            crop_scale=(0.05, 1.0),
            brightness=32,
            contrast=(0.5, 1.5),
            saturation=(0.5, 1.5),
            hue=0.2,
        ),
    ),
    "lenet": (frames.CropOrPad, None),
    "vgg": (frames.ScaleCrop, Augmentation(flip=0.5)),
}


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """From a stored image to uint8 [height, width, 3], for training or evaluation.

    In tf.data, for a block of n images:

        decisions = preprocessing.decide(chance)          # once per block
        image = preprocessing.prepare(data)               # for each image
        image = preprocessing.apply(image, decision)      # its row of the decisions

    Args:
        name: for messages.
        frame: which part of an image is used, see `frames`.
        augmentation: what may happen to it at random, or None.
    """

    name: str
    frame: frames.Stretch
    augmentation: Augmentation | None = None

    @property
    def image_size(self) -> tuple[int, int]:
        """(height, width) of the result."""
        return self.frame.size

    @property
    def kept_size(self) -> tuple[int, int]:
        """(height, width) of what `keep` returns."""
        return self.frame.kept_size

    @property
    def stretches(self) -> bool:
        """Whether the whole image is used, so that only its size matters."""
        return type(self.frame) is frames.Stretch

    def prepare(self, image: tf.Tensor) -> tf.Tensor:
        """Decodes; resizes where that is the same every time.

        Args:
            image: string scalar or an array, see `images.to_rgb`.

        Returns:
            uint8 [h, w, 3], of a size that `apply` takes.
        """
        return self.frame.prepare(images.to_rgb(image))

    def decide(self, chance: tf.Tensor) -> dict[str, tf.Tensor]:
        """Decides at random what happens to each image of a block.

        Args:
            chance: float32 [n, 32], uniform in [0, 1).

        Returns:
            dict of tensors [n, ...]; an empty one when nothing is random.
        """
        own = self.frame.own_part(self.augmentation)
        decisions = self.frame.decide(chance, self.augmentation)
        return decisions | random_changes.decide(chance, own, self.image_size)

    def apply(self, image: tf.Tensor, decision: dict[str, tf.Tensor]) -> tf.Tensor:
        """Does to a prepared (or kept) image what was decided for it.

        Args:
            image: uint8 [h, w, 3] from `prepare` or `keep`.
            decision: a row of what `decide` returned.

        Returns:
            uint8 [height, width, 3].
        """
        image = self.frame.train(image, decision)
        return random_changes.apply(image, decision, self.augmentation)

    def augment(self, image: tf.Tensor, chance: tf.Tensor) -> tf.Tensor:
        """`decide` and `apply` for a single image; chance is float32 [32]."""
        chance = tf.reshape(chance, [1, NUM_CHANCES])
        return self.apply(image, random_changes.first_of(self.decide(chance)))

    def keep(self, image: tf.Tensor) -> tf.Tensor:
        """Decodes to `kept_size`: what a cache keeps for `apply`."""
        return self.frame.keep(images.to_rgb(image))

    def evaluate(self, image: tf.Tensor) -> tf.Tensor:
        """Decodes and frames without anything random: uint8 [height, width, 3]."""
        return self.frame.evaluate(images.to_rgb(image))


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
    _check_name(name)
    frame, own = _NAMED[name]
    if augmentation == "own":
        augmentation = own
    size = check_image_size(image_size)
    return Preprocessing(name, frame(size), Augmentation.named(augmentation))


def names() -> list[str]:
    """Names of the preprocessings, sorted."""
    return sorted(_NAMED)


def own_augmentation(name: str) -> Augmentation | None:
    """What a preprocessing changes at random when nothing else is asked for."""
    _check_name(name)
    return _NAMED[name][1]


def _check_name(name: str):
    if name in _NAMED:
        return
    hint = did_you_mean(str(name), names())
    raise ValueError(
        f"There is no preprocessing {name!r}.{hint} Known: {', '.join(names())}."
    )
