"""How images are decoded, sampled, shuffled, augmented and batched."""

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
    """The input pipeline and the augmentation."""

    preprocessing_name: str | None = option(
        None,
        "preprocessing by name; None: the network's, else the data set's (FastNN)",
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
        8, "batches to decode at the same time; None: automatic (FastNN)", lower=1
    )
    prefetch_buffer_size: int | None = option(
        32, "batches prepared in advance; None: automatic (FastNN)", lower=1
    )
    num_preprocessing_threads: int | None = option(
        16, "threads of the pipeline; None: automatic (FastNN)", lower=1
    )
    datasets_use_caching: bool = option(False, "keep decoded images in memory (FastNN)")
    datasets_cache_dir: str = option(
        "", "keep them in a file below this folder instead, for later runs too"
    )
    skip_bad_records: bool = option(
        False, "replace records that cannot be read by the next good ones, and log them"
    )
    sampling: str = option(
        "uniform",
        "uniform; class_balanced: every class equally often; per_identity: "
        "images_per_identity of a class in a row",
        choices=("uniform", "class_balanced", "per_identity"),
    )
    images_per_identity: int = option(
        4, "images of a class in a row", lower=1, applies="sampling=per_identity"
    )
    random_flip: bool | None = option(
        None, "mirror every second image; None, here and below: as preprocessing_name"
    )
    random_rotate: float | None = option(
        None, "rotate by up to this many degrees (PLSC: 10)", within="[0, 180]"
    )
    random_shift: float | None = option(
        None, "shift by up to this fraction of the side", within="[0, 1]"
    )
    random_resized_crop: float | None = option(
        None, "smallest area of a random crop; 1: off (PLSC: 0.08)", within="(0, 1]"
    )
    random_zoom: float | None = option(
        None, "enlarge or shrink by up to this fraction", within="[0, 0.9]"
    )
    random_shear: float | None = option(
        None, "slant by up to this fraction of the height", within="[0, 1]"
    )
    color_jitter: float | None = option(
        None,
        "change brightness, contrast, saturation by up to this (0.2)",
        within="[0, 1]",
    )
    random_hue: float | None = option(
        None, "turn the hue by up to this fraction of the circle", within="[0, 0.5]"
    )
    random_grey: float | None = option(
        None, "probability of an image without colors", within="[0, 1]"
    )
    cutout: float | None = option(
        None, "side of a random blank square, of the image's side", within="[0, 1]"
    )
    random_erasing: float | None = option(
        None, "probability of a rectangle of noise (arXiv:1708.04896)", within="[0, 1]"
    )
    mixup: float = option(
        0.0,
        "mix neighbors in the batch by a share drawn from Beta(mixup, mixup); 0: none. "
        "For softmax (arXiv:1710.09412: 0.2)",
        lower=0,
    )
    cutmix: float = option(
        0.0,
        "put a rectangle of the neighbor into each image, its area from Beta(cutmix, "
        "cutmix); 0: none. For softmax (arXiv:1905.04899: 1.0)",
        lower=0,
    )
    low_resolution: float | None = option(
        None, "probability of shrinking and enlarging (AdaFace: 0.2)", within="[0, 1]"
    )
    crop_in_place: float | None = option(
        None,
        "probability of blackening all but a rectangle (AdaFace: 0.2)",
        within="[0, 1]",
    )
    randaugment_layers: int | None = option(
        None, "RandAugment's N: random operations in sequence", within="[0, 3]"
    )
    randaugment_magnitude: float | None = option(
        None,
        "RandAugment's M: strength of its operations (9)",
        within="[0, 10]",
        applies="randaugment_layers",
    )
    rotate_probability: float | None = option(
        None, "share of the images to rotate (1)", within="[0, 1]", applies="rotates"
    )
    crop_probability: float | None = option(
        None, "share of the images to crop (1)", within="[0, 1]", applies="crops"
    )
    color_probability: float | None = option(
        None, "share of the images to recolor (1)", within="[0, 1]", applies="recolors"
    )
    cutout_probability: float | None = option(
        None, "share of the images to erase from (1)", within="[0, 1]", applies="erases"
    )

    REFUSED = {
        "mixup and sampling=per_identity or cutmix and sampling=per_identity": (
            "mixup and cutmix mix neighbors, which sampling=per_identity takes from "
            "one class: use another sampling."
        ),
    }

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width in pixels; those of faces by default."""
        return self.image_shape[1:] or (112, 112)
