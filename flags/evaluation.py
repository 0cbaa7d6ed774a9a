"""What a model is verified on, and when."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Evaluation(OptionGroup):
    """Verification sets."""

    val_targets: tuple[str, ...] = option(
        ("lfw",),
        "verification sets: <dataset_dir>/<name>.bin, a path to a .bin or pairs.txt, "
        "or a name the data set knows; separated by commas (PLSC val_targets)",
    )
    test_batch_size: int = option(
        120,
        "pictures per step of a verification (PLSC test_batch_size)",
        lower=1,
        applies="with_test",
    )
    with_test: bool = option(
        True, "verify while training, after each epoch (PLSC with_test)"
    )
    eval_every_n_steps: int = option(
        0,
        "verify every so many steps; 0: after each epoch (PLSC 0.2 set_test_period)",
        lower=0,
        applies="with_test and val_targets",
    )
    raw_pixel_baseline: bool = option(
        False,
        "print also what comparing raw pixels reaches",
        applies="with_test and val_targets",
    )
