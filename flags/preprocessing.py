"""How pictures are decoded, sampled, shuffled, augmented and batched."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Preprocessing(OptionGroup):
    """The input pipeline and the augmentation."""

    preprocessing_name: str | None = option(
        None,
        "which part of a picture is used and what happens to it at random; None: what "
        "goes with a classic network, else the data set's own (FastNN "
        "preprocessing_name)",
        choices=("cifarnet", "face", "inception", "lenet", "none", "vgg"),
    )
    image_shape: tuple[int, ...] = option(
        (),
        "channels, height and width in pixels of the network's input; empty: the "
        "network's default, 3,112,112 for faces (PLSC image_shape)",
        lower=1,
    )
    shuffle_buffer_size: int = option(
        1024,
        "encoded pictures in the shuffle buffer of sources that can only be read in "
        "order; the others are shuffled as a whole (FastNN shuffle_buffer_size)",
        lower=1,
        applies="streamed",
    )
    num_parallel_batches: int | None = option(
        8,
        "batches whose pictures are decoded at the same time; None, here and for the "
        "next two: what suits the machine (FastNN num_parallel_batches)",
        lower=1,
    )
    prefetch_buffer_size: int | None = option(
        32, "batches made ahead (FastNN prefetch_buffer_size)", lower=1
    )
    num_preprocessing_threads: int | None = option(
        16, "threads of the pipeline (FastNN num_preprocessing_threads)", lower=1
    )
    datasets_use_caching: bool = option(
        False,
        "keep the decoded, resized pictures in memory (FastNN datasets_use_caching)",
    )
    datasets_cache_dir: str = option(
        "",
        "keep them in a file below this folder, which later runs find again; empty: "
        "they are not kept on disk",
    )
    skip_bad_records: bool = option(
        False,
        "replace records that cannot be read by the next good ones; they are named in "
        "the log. Else the first one ends the run",
    )
    sampling: str = option(
        "uniform",
        "how often an example comes in an epoch: each once, every class equally often, "
        "or images_per_identity of a class one after the other",
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
        "mirror every second picture, at random; None, here and below: as the "
        "preprocessing has it (face mirrors)",
    )
    random_rotate: float | None = option(
        None,
        "rotate by up to so many degrees either way (PLSC: 10)",
        lower=0,
        upper=180,
    )
    random_shift: float | None = option(
        None, "shift by up to this fraction of the side", lower=0, upper=1
    )
    random_resized_crop: float | None = option(
        None,
        "smallest area of a random crop, as a fraction of the picture; 1 is off (PLSC: "
        "0.08)",
        lower=0,
        upper=1,
        open_ends="lower",
    )
    random_zoom: float | None = option(
        None,
        "enlarge or shrink the picture by up to this fraction",
        lower=0,
        upper=0.9,
    )
    random_shear: float | None = option(
        None,
        "slant the picture by up to this fraction of its height",
        lower=0,
        upper=1,
    )
    color_jitter: float | None = option(
        None,
        "change brightness, contrast and saturation by up to this fraction (PLSC: 0.2)",
        lower=0,
        upper=1,
    )
    random_hue: float | None = option(
        None,
        "turn the hue by up to this fraction of the full circle either way",
        lower=0,
        upper=0.5,
    )
    random_grey: float | None = option(
        None, "probability of a picture without colours", lower=0, upper=1
    )
    cutout: float | None = option(
        None,
        "side of a random blank square, as a fraction of the picture's side",
        lower=0,
        upper=1,
    )
    random_erasing: float | None = option(
        None,
        "probability of a random rectangle of noise, 0.02 to 0.4 of the area (Zhong et "
        "al. 2017: 0.5)",
        lower=0,
        upper=1,
    )
    mixup: float = option(
        0.0,
        "mix each image with its neighbor in the batch, and their labels, by a share "
        "of Beta(mixup, mixup): 0.2 (arXiv:1710.09412); 0: none. For loss_type=softmax "
        "and dist_softmax",
        lower=0,
    )
    cutmix: float = option(
        0.0,
        "put a rectangle of the neighbor into each image, whose share of the area is "
        "of Beta(cutmix, cutmix): 1.0 (arXiv:1905.04899); 0: none. With mixup, each "
        "step takes one of the two at random",
        lower=0,
    )
    low_resolution: float | None = option(
        None,
        "probability of a picture made smaller, down to a fifth, and large again "
        "(AdaFace: 0.2)",
        lower=0,
        upper=1,
    )
    crop_in_place: float | None = option(
        None,
        "probability that all but a random rectangle is black (AdaFace: 0.2)",
        lower=0,
        upper=1,
    )
    randaugment_layers: int | None = option(
        None, "RandAugment's N: random operations one after the other", lower=0, upper=3
    )
    randaugment_magnitude: float | None = option(
        None,
        "RandAugment's M: strength of its operations (9)",
        lower=0,
        upper=10,
        applies="randaugment_layers",
    )
    rotate_probability: float | None = option(
        None,
        "share of the pictures that random_rotate turns (1)",
        lower=0,
        upper=1,
        applies="rotates",
    )
    crop_probability: float | None = option(
        None,
        "share of the pictures that random_resized_crop cuts (1)",
        lower=0,
        upper=1,
        applies="crops",
    )
    color_probability: float | None = option(
        None,
        "share of the pictures whose colours change by color_jitter and random_hue (1)",
        lower=0,
        upper=1,
        applies="recolors",
    )
    cutout_probability: float | None = option(
        None,
        "share of the pictures that cutout erases from (1)",
        lower=0,
        upper=1,
        applies="erases",
    )

    def __post_init__(self):
        super().__post_init__()
        if (self.mixup or self.cutmix) and self.sampling == "per_identity":
            raise ValueError(
                "mixup and cutmix mix neighbors, which sampling=per_identity takes "
                "from one class: use another sampling. Received: "
                f"mixup={self.mixup}, cutmix={self.cutmix}."
            )
        shape = self.image_shape
        if not shape:
            return
        if len(shape) == 3 and shape[0] == 3:
            return
        hint = "for example 3,112,112"
        if len(shape) == 3 and shape[2] == 3:
            hint = f"did you mean 3,{shape[0]},{shape[1]}?"
        raise ValueError(
            "image_shape must be channels, height, width with 3 channels (PLSC's "
            f"order). Received: image_shape={','.join(map(str, shape))}; {hint}"
        )

    @property
    def image_size(self):
        """Height and width in pixels; those of faces where nothing is said."""
        return self.image_shape[1:] or (112, 112)
