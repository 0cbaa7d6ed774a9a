"""How pictures are decoded, shuffled, augmented and batched."""

import dataclasses

from plsc_tf.options import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Preprocessing(OptionGroup):
    """The input pipeline and the augmentation."""

    preprocessing_name: str | None = option(
        None,
        "preprocessing by name; None: the model's own (FastNN preprocessing_name)",
        choices=("face",),
    )
    image_shape: tuple[int, ...] = option(
        (3, 112, 112),
        "channels, height and width in pixels of the network's input (PLSC "
        "image_shape)",
        lower=1,
    )
    shuffle_buffer_size: int = option(
        1024,
        "encoded pictures in the shuffle buffer of sources that can only be read in "
        "order; the others are shuffled as a whole (FastNN shuffle_buffer_size)",
        lower=1,
    )
    num_parallel_batches: int = option(
        8,
        "batches whose pictures are decoded at the same time (FastNN "
        "num_parallel_batches)",
        lower=1,
    )
    prefetch_buffer_size: int = option(
        32, "batches made ahead (FastNN prefetch_buffer_size)", lower=1
    )
    num_preprocessing_threads: int = option(
        16, "threads of the pipeline (FastNN num_preprocessing_threads)", lower=1
    )
    datasets_use_caching: bool = option(
        False,
        "keep the decoded, resized pictures in memory (FastNN datasets_use_caching)",
    )
    random_flip: bool = option(
        True, "mirror every second picture, at random (PLSC's face preprocessing)"
    )
    random_rotate: float = option(
        0.0, "rotate by up to so many degrees either way", lower=0, upper=180
    )
    random_shift: float = option(
        0.0, "shift by up to this fraction of the side", lower=0, upper=1
    )
    random_resized_crop: float = option(
        1.0,
        "smallest area of a random crop, as a fraction of the picture; 1 is off",
        lower=0,
        upper=1,
        open_ends="lower",
    )
    random_zoom: float = option(
        0.0,
        "enlarge or shrink the picture by up to this fraction",
        lower=0,
        upper=0.9,
    )
    random_shear: float = option(
        0.0, "slant the picture by up to this fraction of its height", lower=0, upper=1
    )
    color_jitter: float = option(
        0.0,
        "change brightness, contrast and saturation by up to this fraction",
        lower=0,
        upper=1,
    )
    random_grey: float = option(
        0.0, "probability of a picture without colours", lower=0, upper=1
    )
    cutout: float = option(
        0.0,
        "side of a random blank square, as a fraction of the picture's side",
        lower=0,
        upper=1,
    )

    def __post_init__(self):
        super().__post_init__()
        shape = self.image_shape
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
        """Height and width in pixels."""
        return self.image_shape[1:]
