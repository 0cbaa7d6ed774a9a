"""The learning rate and how it changes."""

import dataclasses

from plsc_tf.options import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class LearningRate(OptionGroup):
    """The schedule of the learning rate."""

    learning_rate: float = option(
        0.1,
        "learning rate at a global batch of lr_base_batch_size (PLSC lr; FastNN "
        "learning_rate, 0.01)",
        lower=0,
        aliases=("lr",),
    )
    learning_rate_decay_type: str = option(
        "piecewise",
        "piecewise: x learning_rate_decay_factor at each of lr_steps, as in PLSC; the "
        "others run down to end_learning_rate (FastNN learning_rate_decay_type, "
        "exponential)",
        choices=("piecewise", "fixed", "polynomial", "cosine", "exponential"),
    )
    lr_steps: tuple[int, ...] = option(
        (100000, 160000, 220000),
        "steps at which piecewise decays (PLSC lr_steps)",
        lower=1,
    )
    learning_rate_decay_factor: float = option(
        0.1,
        "factor of one decay (PLSC 0.1; FastNN learning_rate_decay_factor, 0.94)",
        lower=0,
        open_ends="lower",
    )
    warmup_epochs: float = option(
        0.0,
        "epochs in which the rate grows from a small value to learning_rate, may be a "
        "fraction (PLSC warmup_epochs)",
        lower=0,
    )
    end_learning_rate: float = option(
        0.0001,
        "rate that polynomial and cosine decay end at (FastNN end_learning_rate)",
        lower=0,
    )
    polynomial_power: float = option(
        1.0, "power of the polynomial decay; 1 is a line", lower=0, open_ends="lower"
    )
    lr_base_batch_size: int = option(
        1024,
        "the learning rate is multiplied by global batch / this; 0: not scaled (PLSC's "
        "rule)",
        lower=0,
    )

    def __post_init__(self):
        super().__post_init__()
        if list(self.lr_steps) != sorted(set(self.lr_steps)):
            raise ValueError(
                "lr_steps must be growing step numbers. Received: "
                f"lr_steps={','.join(map(str, self.lr_steps))}."
            )
