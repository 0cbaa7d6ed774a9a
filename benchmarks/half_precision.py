"""Accuracy of trainings with 16 and 8 bits compared with float32, seed by seed.

For each recipe and seed the same training runs in each precision, of the computation or
of the class weights and their momentum: initial weights, order of the images and
augmentation are those of the seed. The schedule is shortened to the epochs in
`paired.RECIPES`. The last line printed is one JSON object.

    python -m benchmarks.half_precision --data_root=data --work_dir=half_precision
    python -m benchmarks.half_precision --data_root=data --recipes=cifar10 --seeds=1
"""

from benchmarks import options, paired
from plsc_tf.flags.option import option

PRECISIONS = {
    "float32": [],
    "bfloat16": ["--use_bf16"],
    "float16": ["--use_fp16"],
    "bfloat16_head": ["--head_weight_dtype=bfloat16", "--head_slot_dtype=bfloat16"],
    "int8_head": ["--head_weight_dtype=int8", "--head_slot_dtype=int8"],
}


class HalfCase(paired.PairedCase):
    """Which trainings are compared."""

    precisions: tuple[str, ...] = option(
        ("bfloat16", "float16"),
        "compared with float32",
        choices=" ".join(PRECISIONS),
    )


def main(case):
    """Runs all trainings and prints the table and the figures."""
    chosen = {name: PRECISIONS[name] for name in ("float32", *case.precisions)}
    paired.run(case, "half_precision", lambda *_: chosen)


if __name__ == "__main__":
    options.run(main, HalfCase, __doc__)
