"""Measures a network's passes: plain, compiled by XLA, and in blocks.

    python -m benchmarks.passes --network=iresnet50 --batch_size=32

Each measurement runs in a process of its own; the figures of each way are printed as
one JSON object. `bytes_per_image` is the slope of the peak memory between a batch of
one image and the whole batch, so that it contains neither weights nor TensorFlow.
"""

import json

from benchmarks import children, machine, options
from benchmarks.gpu import networks
from plsc_tf.flags.option import OptionGroup, option

WAYS = {
    "plain": {"jit_compile": False},
    "compiled": {"jit_compile": True},
    "blocks": {"jit_compile": False, "recompute": "blocks"},
    "both": {"jit_compile": True, "recompute": "blocks"},
}


class PassesCase(OptionGroup):
    """What is measured."""

    network: str = option("iresnet50", "name of the network")
    image_size: int = option(112, "height and width of the images", lower=1)
    batch_size: int = option(32, "images of a step", lower=2)
    steps: int = option(3, "timed steps", lower=1)
    ways: tuple[str, ...] = option(tuple(WAYS), "ways", choices=" ".join(WAYS))


def measure(case, way, batch_size):
    """The figures of `networks.step`."""
    return networks.step(
        model_name=case.network,
        image_size=case.image_size,
        emb_size=512,
        num_classes=1000,
        dtype="float32",
        global_batch=batch_size,
        steps=case.steps,
        **WAYS[way],
    )


def main(case):
    """Prints a JSON object for each way."""
    for way in case.ways:
        one, whole = (
            children.call(measure, case, way, size) for size in (1, case.batch_size)
        )
        grown = machine.GB * (whole["memory_gb"] - one["memory_gb"])
        whole["bytes_per_image"] = round(grown / (case.batch_size - 1))
        print(json.dumps({"way": way, **machine.rounded(whole)}), flush=True)


if __name__ == "__main__":
    options.run(main, PassesCase, __doc__)
