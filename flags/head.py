"""The classification head and its margin."""

import dataclasses

from plsc_tf.options import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Head(OptionGroup):
    """The head: which loss, which margin, whole or sharded by classes."""

    loss_type: str = option(
        "dist_arcface",
        "arcface, softmax: each replica holds all classes; dist_arcface, "
        "dist_softmax: each holds its share of them. softmax has a bias and takes no "
        "margin (PLSC loss_type)",
        choices=("softmax", "arcface", "dist_softmax", "dist_arcface"),
    )
    margin: float = option(
        0.5, "angle added to the true class, in radians (PLSC margin)", lower=0
    )
    scale: float = option(
        64.0,
        "factor of the cosines before the softmax (PLSC scale)",
        lower=0,
        open_ends="lower",
    )
    margin1: float = option(
        1.0,
        "factor of the true class's angle. The combined margin is cos(margin1 x angle "
        "+ margin) - margin3 (PLSC 0.2 set_loss_type's m1, m2, m3): SphereFace is "
        "1.35, 0, 0, CosFace 1, 0, 0.35",
        lower=0,
        open_ends="lower",
    )
    margin3: float = option(
        0.0, "subtracted from the true class's cosine; see margin1", lower=0
    )
    margin_gradient: str = option(
        "exact",
        "exact: the margin is differentiated, as in PLSC; straight_through: its "
        "derivative is taken as 1, as in arcface_torch",
        choices=("exact", "straight_through"),
    )
    calc_acc: bool = option(
        False,
        "top-1 and top-5 accuracy while training; costs time and memory (PLSC "
        "set_calc_acc)",
    )
