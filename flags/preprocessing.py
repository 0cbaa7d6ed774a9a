"""Defines the options for decoding, sampling, shuffling and augmenting images."""

import functools

from plsc_tf.flags.checks import rule
from plsc_tf.flags.option import Amount, OptionGroup, Positive, option

_share = functools.partial(option, None, within="[0, 1]")


_shape = rule(
    "be 3 channels, height and width (PLSC's order), for example 3,112,112",
    lambda shape: not shape or (len(shape) == 3 and shape[0] == 3),
)


class Preprocessing(OptionGroup):
    """Options for the input pipeline and the augmentation."""

    preprocessing_name: str | None = option(
        None,
        "None: that of the network or, failing that, of the data set (FastNN)",
        choices="cifarnet face inception lenet none vgg",
    )
    image_shape: tuple[Positive, ...] = option(
        (), "channels, height, width, such as 3,112,112 (PLSC)", check=_shape
    )
    shuffle_buffer_size: Positive = option(
        1024, "images in the shuffle buffer (FastNN)", applies="streamed"
    )
    num_parallel_batches: Positive | None = option(
        8, "batches to decode in parallel; None: automatic (FastNN)"
    )
    prefetch_buffer_size: Positive | None = option(
        32, "batches to prepare in advance; None: automatic (FastNN)"
    )
    num_preprocessing_threads: Positive | None = option(
        16, "threads of the input pipeline; None: automatic (FastNN)"
    )
    datasets_use_caching: bool = option(False, "keep decoded images in memory (FastNN)")
    datasets_cache_dir: str = option(
        "", "keep decoded images in a file in this folder, for later runs too"
    )
    skip_bad_records: bool = option(
        False, "log unreadable images and use the next ones; embed leaves them out"
    )
    sampling: str = option(
        "uniform",
        "class_balanced: all classes equally often; per_identity: images_per_identity "
        "consecutive images of a class",
        choices="uniform class_balanced per_identity",
    )
    images_per_identity: Positive = option(
        4, "consecutive images of a class", applies="sampling=per_identity"
    )
    random_flip: bool | None = option(
        None, "mirror half the images; None, here and below: as the preprocessing says"
    )
    random_rotate: float | None = option(
        None, "rotate by up to this number of degrees (PLSC: 10)", within="[0, 180]"
    )
    random_shift: float | None = _share("shift by up to this fraction of the side")
    random_resized_crop: float | None = option(
        None, "smallest share of the area to crop; 1: off (PLSC: 0.08)", within="(0, 1]"
    )
    random_zoom: float | None = option(
        None, "enlarge or shrink by up to this fraction", within="[0, 0.9]"
    )
    random_shear: float | None = _share("shear by up to this fraction of the height")
    color_jitter: float | None = _share(
        "change brightness, contrast, saturation by up to this fraction (PLSC: 0.2)"
    )
    random_hue: float | None = option(
        None, "rotate the hue by up to this share of the circle", within="[0, 0.5]"
    )
    random_grey: float | None = _share("probability of converting to grayscale")
    cutout: float | None = _share(
        "largest erased square, as a share of the shorter side"
    )
    random_erasing: float | None = _share(
        "probability of noise in a rectangle (arXiv:1708.04896)"
    )
    mixup: Amount = option(
        0.0, "mix each image with a neighbor, by Beta(mixup, mixup); 0: off"
    )
    cutmix: Amount = option(
        0.0, "paste a rectangle of the neighbor; area: Beta(cutmix, cutmix); 0: off"
    )
    low_resolution: float | None = _share(
        "probability of shrinking and enlarging (AdaFace: 0.2)"
    )
    crop_in_place: float | None = _share(
        "probability of blackening all but a rectangle (AdaFace: 0.2)"
    )
    randaugment_layers: int | None = option(
        None, "RandAugment's N: operations in sequence", within="[0, 3]"
    )
    randaugment_magnitude: float | None = option(
        None,
        "RandAugment's M: strength; 9 if not set",
        within="[0, 10]",
        applies="randaugment_layers",
    )
    color_probability: float | None = _share(
        "share of the images to recolor; 1 if not set", applies="recolors"
    )

    REFUSED = {
        "mixup and sampling=per_identity or cutmix and sampling=per_identity": (
            "mixup and cutmix mix consecutive images, but with sampling=per_identity "
            "these are of one class: use another sampling."
        )
    }

    @property
    def image_size(self) -> tuple[int, int]:
        """The image height and width in pixels; 112 x 112 (faces) by default."""
        return self.image_shape[1:] or (112, 112)
