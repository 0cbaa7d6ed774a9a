"""Verification sets, and when a model is verified."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Evaluation(OptionGroup):
    """Verification sets."""

    val_targets: tuple[str, ...] = option(
        ("lfw",),
        "verification sets: <dataset_dir>/<name>.bin, a path to a .bin or pairs.txt, "
        "or a name that the data set knows (PLSC val_targets)",
    )
    test_batch_size: int = option(
        120,
        "images per step of a verification (PLSC test_batch_size)",
        lower=1,
        applies="with_test",
    )
    with_test: bool = option(
        True, "verify while training, after each epoch (PLSC with_test)"
    )
    eval_every_n_steps: int = option(
        0,
        "steps between two verifications; 0: after each epoch (PLSC 0.2 "
        "set_test_period)",
        lower=0,
        applies="with_test and val_targets",
    )
    raw_pixel_baseline: bool = option(
        False,
        "also print the accuracy of comparing raw pixels",
        applies="with_test and val_targets",
    )
