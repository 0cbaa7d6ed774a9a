"""How images are decoded, sampled, shuffled, augmented and batched."""

import dataclasses

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


@dataclasses.dataclass(frozen=True)
class Preprocessing(OptionGroup):
    """The input pipeline and the augmentation."""

    preprocessing_name: str | None = option(
        None,
        "preprocessing and augmentation by name; None: that of a classic network, else "
        "the data set's own (FastNN preprocessing_name)",
        choices=("cifarnet", "face", "inception", "lenet", "none", "vgg"),
    )
    image_shape: tuple[int, ...] = option(
        (),
        "channels, height and width in pixels of the network's input; empty: the "
        "network's default, 3,112,112 for faces (PLSC image_shape)",
        lower=1,
        check=_shape,
    )
    shuffle_buffer_size: int = option(
        1024,
        "encoded images in the shuffle buffer of sources that can only be read in "
        "order; others are shuffled as a whole (FastNN shuffle_buffer_size)",
        lower=1,
        applies="streamed",
    )
    num_parallel_batches: int | None = option(
        8,
        "batches whose images are decoded at the same time; None, here and in the next "
        "two: chosen for the machine (FastNN num_parallel_batches)",
        lower=1,
    )
    prefetch_buffer_size: int | None = option(
        32, "batches prepared in advance (FastNN prefetch_buffer_size)", lower=1
    )
    num_preprocessing_threads: int | None = option(
        16, "threads of the pipeline (FastNN num_preprocessing_threads)", lower=1
    )
    datasets_use_caching: bool = option(
        False,
        "keep the decoded, resized images in memory (FastNN datasets_use_caching)",
    )
    datasets_cache_dir: str = option(
        "",
        "keep them in a file below this folder, for later runs too; empty: not on disk",
    )
    skip_bad_records: bool = option(
        False,
        "replace records that cannot be read by the next good ones and log their "
        "names; else the first one ends the run",
    )
    sampling: str = option(
        "uniform",
        "uniform: each example once per epoch; class_balanced: every class equally "
        "often; per_identity: images_per_identity of a class in a row",
        choices=("uniform", "class_balanced", "per_identity"),
    )
    images_per_identity: int = option(
        4,
        "images of each class in a batch, for sampling=per_identity",
        lower=1,
        applies="sampling=per_identity",
    )
    random_flip: bool | None = option(
        None,
        "mirror every second image, at random; None, here and below: as the "
        "preprocessing does (face mirrors)",
    )
    random_rotate: float | None = option(
        None,
        "rotate by up to this many degrees (PLSC: 10)",
        within="[0, 180]",
    )
    random_shift: float | None = option(
        None, "shift by up to this fraction of the side", within="[0, 1]"
    )
    random_resized_crop: float | None = option(
        None,
        "smallest area of a random crop, as a fraction of the image; 1: off (PLSC: "
        "0.08)",
        within="(0, 1]",
    )
    random_zoom: float | None = option(
        None, "enlarge or shrink by up to this fraction", within="[0, 0.9]"
    )
    random_shear: float | None = option(
        None, "slant by up to this fraction of the height", within="[0, 1]"
    )
    color_jitter: float | None = option(
        None,
        "change brightness, contrast and saturation by up to this fraction (PLSC: 0.2)",
        within="[0, 1]",
    )
    random_hue: float | None = option(
        None,
        "turn the hue by up to this fraction of the full circle either way",
        within="[0, 0.5]",
    )
    random_grey: float | None = option(
        None, "probability of an image without colors", within="[0, 1]"
    )
    cutout: float | None = option(
        None,
        "side of a random blank square, as a fraction of the image's side",
        within="[0, 1]",
    )
    random_erasing: float | None = option(
        None,
        "probability of a random rectangle of noise, 0.02 to 0.4 of the area (Zhong et "
        "al. 2017: 0.5)",
        within="[0, 1]",
    )
    mixup: float = option(
        0.0,
        "mix each image and its label with its neighbor in the batch, by a share drawn "
        "from Beta(mixup, mixup): 0.2 (arXiv:1710.09412); 0: none. For "
        "loss_type=softmax and dist_softmax",
        lower=0,
    )
    cutmix: float = option(
        0.0,
        "put a rectangle of the neighbor into each image, whose share of the area is "
        "drawn from Beta(cutmix, cutmix): 1.0 (arXiv:1905.04899); 0: none. With mixup, "
        "each step takes one of the two at random",
        lower=0,
    )
    low_resolution: float | None = option(
        None,
        "probability of shrinking an image, down to a fifth, and enlarging it again "
        "(AdaFace: 0.2)",
        within="[0, 1]",
    )
    crop_in_place: float | None = option(
        None,
        "probability of blackening all but a random rectangle (AdaFace: 0.2)",
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
        None,
        "share of the images that random_rotate rotates (1)",
        within="[0, 1]",
        applies="rotates",
    )
    crop_probability: float | None = option(
        None,
        "share of the images that random_resized_crop crops (1)",
        within="[0, 1]",
        applies="crops",
    )
    color_probability: float | None = option(
        None,
        "share of the images that color_jitter and random_hue change (1)",
        within="[0, 1]",
        applies="recolors",
    )
    cutout_probability: float | None = option(
        None,
        "share of the images that cutout erases from (1)",
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
        """Height and width in pixels; those of faces by default."""
        return self.image_shape[1:] or (112, 112)
