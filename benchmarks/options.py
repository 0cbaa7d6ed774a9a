"""Command lines of the benchmarks: `--name=value` for each field of a dataclass."""

import argparse
import subprocess
import sys

from plsc_tf.flags.option import OptionGroup, option, options_of

# Bytes of a number, by type.
_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1, "float8": 1}


class StepsCase(OptionGroup):
    """A head, its batches, and how many steps to take."""

    num_classes: int = option(100_000, "number of classes", lower=1)
    emb_size: int = option(512, "length of the embeddings", lower=1)
    global_batch: int = option(64, "examples per step over all replicas", lower=1)
    num_replicas: int = option(
        2, "replicas; 0: every GPU, else one CPU device", lower=0
    )
    sample_rate: float = option(
        1.0,
        "fraction of the classes in a step (Partial FC)",
        within="(0, 1]",
    )
    tile_rows: int | None = option(
        None, "class rows per tile; None: the head's default", lower=1
    )
    logits_mb: int | None = option(
        None, "megabytes of logits to keep; None: the head's default", lower=0
    )
    head_dtype: str = option(
        "", "type of the head's matrix products; empty: the head's default, float32"
    )
    weight_dtype: str = option(
        "float32",
        "type in which the weights are stored",
        choices="float32 bfloat16 int8 float8",
    )
    slot_dtype: str = option(
        "float32", "type of the optimizer's slots", choices="float32 bfloat16 int8"
    )
    initializer: str = option(
        "", "initial class weights, such as constant(0.1), which is fast; empty: normal"
    )
    optimizer: str = option(
        "momentum",
        "update rule of backbone and head",
        choices="momentum sgd adam adamw",
    )
    margins: str = option(
        "arcface", "margins of the head", choices="arcface cosface softmax"
    )
    learning_rate: float | None = option(
        None, "None: 1e-4 for momentum and sgd, 1e-5 for adam and adamw", lower=0
    )
    steps: int = option(5, "timed steps per round", lower=1)
    warmup: int = option(2, "untimed steps before those", lower=1)
    seed: int = option(0, "random seed of weights, embeddings and labels")

    @property
    def rate(self):
        """The learning rate, by default so small that the loss falls step by step.

        At usual rates a few batches are learned by heart at once; their softmax then
        holds numbers so small that processors compute them slowly.
        """
        if self.learning_rate is not None:
            return self.learning_rate
        return 1e-4 if self.optimizer in ("momentum", "sgd") else 1e-5

    @property
    def held_bytes(self):
        """Bytes of the class weights and of the optimizer's slots for them."""
        slots = {"momentum": 1, "sgd": 0, "adam": 2, "adamw": 2}[self.optimizer]
        number = _BYTES[self.weight_dtype] + slots * _BYTES[self.slot_dtype]
        return self.num_classes * self.emb_size * number


class HeadCase(StepsCase):
    """What one run of `benchmarks.head` measures."""

    rounds: int = option(1, "alternating rounds of steps and products", lower=1)
    products: bool = option(True, "also time the bare products, which need more memory")
    restored: bool = option(
        False, "also time steps after a restore, by turns with a model's without one"
    )
    peer: str = option("", "checkout of arcface_torch to compare with; empty: none")
    peer_python: str = option("python3", "a Python that has PyTorch, for --peer")
    peer_precision: str = option(
        "float32",
        "products of --peer; float16 as its users train with it: autocast, loss scale",
        choices="float32 tf32 float16",
    )
    peer_threads: int = option(
        0, "PyTorch's threads per rank; 0: equal shares of the cores", lower=0
    )


def parse(group_class, doc, argv=None):
    """The group that a command line asks for; wrong ones end the process.

    Args:
        group_class: an `OptionGroup`.
        doc: what the command does, for `--help`.
        argv: arguments after the program's name; None: those of the process.
    """
    parser = argparse.ArgumentParser(
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for item in options_of(group_class):
        default = item.format(item.default)
        parser.add_argument(
            f"--{item.name}",
            default=default,
            metavar="VALUE",
            **({"nargs": "?", "const": "true"} if item.default is False else {}),
            help=f"{item.help} [{item.expected()}; default: {default}]".replace(
                "%", "%%"
            ),
        )
    texts = vars(parser.parse_args(argv))
    try:
        values = {o.name: o.parse(texts[o.name]) for o in options_of(group_class)}
        return group_class(**values)
    except ValueError as error:
        parser.error(str(error))


def run(main, group_class, doc):
    """Runs a benchmark; its result is the exit status, its errors are one line.

    Args:
        main: function of the group.
        group_class: an `OptionGroup`.
        doc: what the command does, for `--help`.
    """
    try:
        sys.exit(main(parse(group_class, doc)))
    except (ValueError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        name = sys.modules["__main__"].__spec__.name
        sys.exit(f"{name}: {error}")
