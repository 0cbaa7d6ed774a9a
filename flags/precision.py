"""Half precision, loss scaling, and what happens when a step is not finite."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option

LISTS = ("white", "black")
# A condition, see `plsc_tf.options.effects`.
_DYNAMIC = "use_fp16 and use_dynamic_loss_scaling and loss_scale=0.0,1.0"


@dataclasses.dataclass(frozen=True)
class Precision(OptionGroup):
    """Half precision (PLSC's set_mixed_precision), and NaN."""

    use_fp16: bool = option(
        False,
        "train the backbone in float16 with float32 weights (PLSC use_fp16; FastNN "
        "use_fp16, True)",
        aliases=("fp16",),
    )
    use_bf16: bool = option(
        False,
        "train the backbone in bfloat16, which needs no loss scale",
        aliases=("bf16",),
    )
    amp_level: str | None = option(
        None,
        "O0: float32; O1, O2, O3: the same as use_fp16; None: as use_fp16 and use_bf16 "
        "say (MindSpore amp_level)",
        choices=("o0", "o1", "o2", "o3"),
    )
    keep_batchnorm_fp32: bool = option(
        False,
        "batch normalisations hand on float32 too; their arithmetic and statistics "
        "are float32 in any case (MindSpore keep_batchnorm_fp32)",
        applies="use_fp16 or use_bf16",
    )
    amp_lists: str = option(
        "",
        "layers by class or name to compute in half precision (white) or float32 "
        "(black): 'white:embedding_dense;black:PReLU,stem_conv' (PLSC amp_lists)",
        applies="use_fp16 or use_bf16",
    )
    init_loss_scaling: float = option(
        1.0,
        "use_fp16: first loss scale (PLSC init_loss_scaling)",
        lower=1,
        applies="use_fp16",
    )
    use_dynamic_loss_scaling: bool = option(
        True,
        "use_fp16: let the loss scale grow and shrink by the next four options (PLSC "
        "use_dynamic_loss_scaling)",
        applies="use_fp16 and loss_scale=0.0,1.0",
    )
    incr_every_n_steps: int = option(
        2000,
        "finite steps in a row before the loss scale grows (PLSC incr_every_n_steps)",
        lower=1,
        applies=_DYNAMIC,
    )
    decr_every_n_nan_or_inf: int = option(
        2,
        "steps in a row that are not finite before the loss scale shrinks (PLSC "
        "decr_every_n_nan_or_inf)",
        lower=1,
        applies=_DYNAMIC,
    )
    incr_ratio: float = option(
        2.0,
        "factor of growth of the loss scale (PLSC incr_ratio)",
        lower=1,
        open_ends="lower",
        applies=_DYNAMIC,
    )
    decr_ratio: float = option(
        0.5,
        "factor of shrinking of the loss scale, to no less than 1 (PLSC decr_ratio)",
        lower=0,
        upper=1,
        open_ends="lower upper",
        applies=_DYNAMIC,
    )
    loss_scale: float = option(
        1.0,
        "use_fp16: a fixed loss scale instead of PLSC's dynamic one; 0 or 1: none "
        "(FastNN loss_scale)",
        lower=0,
        applies="use_fp16",
    )
    on_nonfinite: str = option(
        "stop",
        "when the loss or a gradient is NaN or infinite, and no loss scale explains "
        "it: stop, rollback to the last checkpoint and go on behind the batch, or "
        "skip the batch; it is kept in <model_save_dir>/nonfinite in any case",
        choices=("stop", "rollback", "skip"),
    )
    max_nonfinite: int = option(
        5,
        "on_nonfinite=rollback or skip: times at most, then the run stops",
        lower=1,
        applies="on_nonfinite=rollback,skip",
    )

    def __post_init__(self):
        super().__post_init__()
        self._settle_level()
        if self.use_fp16 and self.use_bf16:
            raise ValueError(
                "use_fp16 and use_bf16 are two kinds of half precision: set one of "
                "them. Received: use_fp16=True, use_bf16=True."
            )
        if 0 < self.loss_scale < 1:
            raise ValueError(
                "loss_scale must be 0 or 1 (none), or above 1. Received: loss_scale="
                f"{self.loss_scale}."
            )
        if self.loss_scale > 1 and self.init_loss_scaling > 1:
            raise ValueError(
                "loss_scale is fixed (FastNN) and init_loss_scaling the start of a "
                "dynamic scale (PLSC): set one of them. Received: loss_scale="
                f"{self.loss_scale}, init_loss_scaling={self.init_loss_scaling}."
            )
        lists = self.layer_lists()
        both = sorted(set(lists["white"]) & set(lists["black"]))
        if both:
            self._refuse_lists(f"{', '.join(both)} in both lists")
        if self.keep_batchnorm_fp32 and "BatchNormalization" in lists["white"]:
            raise ValueError(
                "keep_batchnorm_fp32=True contradicts BatchNormalization in the white "
                f"list. Received: amp_lists={self.amp_lists!r}."
            )

    @property
    def dtype(self):
        """What the backbone computes in: float32, float16 or bfloat16."""
        if self.use_fp16:
            return "float16"
        return "bfloat16" if self.use_bf16 else "float32"

    def _settle_level(self):
        """Makes MindSpore's level the option that it stands for."""
        if self.amp_level == "o0" and (self.use_fp16 or self.use_bf16):
            raise ValueError(
                "amp_level=O0 is float32. Received: amp_level=O0, use_fp16="
                f"{self.use_fp16}, use_bf16={self.use_bf16}."
            )
        if self.amp_level not in (None, "o0"):
            # The only way to store a value in a frozen dataclass.
            object.__setattr__(self, "use_fp16", True)

    def layer_lists(self):
        """Returns `amp_lists` as `{"white": names, "black": names}`.

        Raises:
            ValueError: the text has another form.
        """
        lists = dict.fromkeys(LISTS, ())
        for part in filter(None, map(str.strip, self.amp_lists.split(";"))):
            kind, colon, names = (piece.strip() for piece in part.partition(":"))
            names = tuple(name.strip() for name in names.split(","))
            if kind not in LISTS or not colon or not all(names):
                self._refuse_lists(f"'{part}'")
            if lists[kind]:
                self._refuse_lists(f"{kind} twice")
            lists[kind] = names
        return lists

    def _refuse_lists(self, what):
        raise ValueError(
            "amp_lists must be names of layers or classes, separated by commas, in "
            "one list or both: 'white:Conv2D,Dense;black:PReLU'. Received: amp_lists="
            f"{self.amp_lists!r}, with {what}."
        )
