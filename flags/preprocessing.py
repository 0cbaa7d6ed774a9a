"""Defines the options for decoding, sampling, shuffling and augmenting images."""

from plsc_tf.flags.option import OptionGroup, option


def _shape(name, shape):
    if not shape or (len(shape) == 3 and shape[0] == 3):
        return
    hint = "for example 3,112,112"
    if len(shape) == 3 and shape[2] == 3:
        hint = f"did you mean 3,{shape[0]},{shape[1]}?"
    raise ValueError(
        f"{name} must be channels, height, width with 3 channels (PLSC's order). "
        f"Received: {name}={','.join(map(str, shape))}; {hint}"
    )


class Preprocessing(OptionGroup):
    """Options for the input pipeline and the augmentation."""

    preprocessing_name: str | None = option(
        None,
        "name of the preprocessing; None: that of the network or, failing that, of "
        "the data set (FastNN)",
        choices=("cifarnet", "face", "inception", "lenet", "none", "vgg"),
    )
    image_shape: tuple[int, ...] = option(
        (),
        "channels, height, width of the network's input, such as 3,112,112 (PLSC)",
        lower=1,
        check=_shape,
    )
    shuffle_buffer_size: int = option(
        1024, "images in the shuffle buffer (FastNN)", lower=1, applies="streamed"
    )
    num_parallel_batches: int | None = option(
        8, "batches to decode in parallel; None: automatic (FastNN)", lower=1
    )
    prefetch_buffer_size: int | None = option(
        32, "batches to prepare in advance; None: automatic (FastNN)", lower=1
    )
    num_preprocessing_threads: int | None = option(
        16, "threads of the input pipeline; None: automatic (FastNN)", lower=1
    )
    datasets_use_caching: bool = option(False, "keep decoded images in memory (FastNN)")
    datasets_cache_dir: str = option(
        "", "keep decoded images in a file in this folder instead, for later runs too"
    )
    skip_bad_records: bool = option(
        False, "replace each unreadable record with the next readable one, and log it"
    )
    sampling: str = option(
        "uniform",
        "uniform; class_balanced: every class equally often; per_identity: "
        "images_per_identity consecutive images of a class",
        choices=("uniform", "class_balanced", "per_identity"),
    )
    images_per_identity: int = option(
        4, "consecutive images of a class", lower=1, applies="sampling=per_identity"
    )
    random_flip: bool | None = option(
        None,
        "mirror images with probability 0.5; for this and the next options, None "
        "leaves the choice to the preprocessing",
    )
    random_rotate: float | None = option(
        None, "rotate by up to this number of degrees (PLSC: 10)", within="[0, 180]"
    )
    random_shift: float | None = option(
        None, "shift by up to this fraction of the side", within="[0, 1]"
    )
    random_resized_crop: float | None = option(
        None,
        "smallest area of a random crop, as a share of the image; 1: off (PLSC: 0.08)",
        within="(0, 1]",
    )
    random_zoom: float | None = option(
        None, "enlarge or shrink by up to this fraction", within="[0, 0.9]"
    )
    random_shear: float | None = option(
        None, "shear by up to this fraction of the height", within="[0, 1]"
    )
    color_jitter: float | None = option(
        None,
        "change brightness, contrast and saturation by up to this fraction (0.2)",
        within="[0, 1]",
    )
    random_hue: float | None = option(
        None, "rotate the hue by up to this fraction of the circle", within="[0, 0.5]"
    )
    random_grey: float | None = option(
        None, "probability of converting an image to grayscale", within="[0, 1]"
    )
    cutout: float | None = option(
        None,
        "largest side of an erased square, as a share of the image's shorter side",
        within="[0, 1]",
    )
    random_erasing: float | None = option(
        None,
        "probability of replacing a rectangle with noise (arXiv:1708.04896)",
        within="[0, 1]",
    )
    mixup: float = option(
        0.0,
        "mix each image with its neighbor in the batch, with a weight from "
        "Beta(mixup, mixup); 0: off. For softmax (arXiv:1710.09412: 0.2)",
        lower=0,
    )
    cutmix: float = option(
        0.0,
        "paste a rectangle of its neighbor into each image, with an area from "
        "Beta(cutmix, cutmix); 0: off. For softmax (arXiv:1905.04899: 1.0)",
        lower=0,
    )
    low_resolution: float | None = option(
        None,
        "probability of shrinking and enlarging an image (AdaFace: 0.2)",
        within="[0, 1]",
    )
    crop_in_place: float | None = option(
        None,
        "probability of blackening all of an image but a rectangle (AdaFace: 0.2)",
        within="[0, 1]",
    )
    randaugment_layers: int | None = option(
        None,
        "RandAugment's N: number of random operations in sequence",
        within="[0, 3]",
    )
    randaugment_magnitude: float | None = option(
        None,
        "RandAugment's M: strength of the operations (9)",
        within="[0, 10]",
        applies="randaugment_layers",
    )
    rotate_probability: float | None = option(
        None,
        "share of the images to rotate (default 1)",
        within="[0, 1]",
        applies="rotates",
    )
    crop_probability: float | None = option(
        None,
        "share of the images to crop (default 1)",
        within="[0, 1]",
        applies="crops",
    )
    color_probability: float | None = option(
        None,
        "share of the images whose colors to change (default 1)",
        within="[0, 1]",
        applies="recolors",
    )
    cutout_probability: float | None = option(
        None,
        "share of the images with an erased square (default 1)",
        within="[0, 1]",
        applies="erases",
    )

    REFUSED = {
        "mixup and sampling=per_identity or cutmix and sampling=per_identity": (
            "mixup and cutmix mix neighbors, which sampling=per_identity takes from "
            "one class: use another sampling."
        ),
    }

    @property
    def image_size(self) -> tuple[int, int]:
        """The image height and width in pixels; 112 x 112 (faces) by default."""
        return self.image_shape[1:] or (112, 112)
