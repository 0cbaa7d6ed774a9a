"""Time and memory of `plsc_tf.linear_cross_entropy`, loss and gradients, by turns with
the three bare products and with TensorFlow's loss on a tensor of all logits.

The last line printed is one JSON object; benchmarks/README.md says what it means.

    python -m benchmarks.linear_cross_entropy
    python -m benchmarks.linear_cross_entropy --batch=2048 --logits_mb=256 --plain=false
"""

from benchmarks import children, machine, options
from plsc_tf.flags.option import OptionGroup, option

# Classes and examples of the first call.
WARM = 8192, 512


class Case(OptionGroup):
    """What one run measures."""

    batch: int = option(8192, "examples", lower=1)
    num_classes: int = option(128_256, "number of classes", lower=2)
    emb_size: int = option(512, "features of an example", lower=1)
    logits_mb: float = option(60.0, "megabytes of logits at a time", lower=0)
    rounds: int = option(3, "timed calls of each, by turns", lower=1)
    plain: bool = option(True, "also time TensorFlow's loss, which holds all logits")
    peer_python: str = option(
        "", "a Python whose PyTorch has linear_cross_entropy, to compare; empty: none"
    )


def main(case):
    """Measures one case and prints it."""
    peer = {}
    if case.peer_python:
        sizes = case.batch, case.num_classes, case.emb_size, case.rounds
        peer["peer"] = children.last_line(
            "benchmarks/peer_linear_cross_entropy.py",
            *map(str, sizes),
            python=case.peer_python,
        )
    with machine.report(case) as figures:
        figures |= {**measure(case), **peer}
        if peer:
            theirs = peer["peer"]["seconds"]
            figures["times_as_fast_as_peer"] = theirs / figures["ours_s"]


def measure(case):
    """Returns the figures of one case, see benchmarks/README.md."""
    import tensorflow as tf

    import plsc_tf

    @tf.function  # in the memory of its result
    def normal(seed, *shape):
        return tf.random.stateless_normal(shape, [seed, 0]) * case.emb_size**-0.25

    weight = normal(0, case.num_classes, case.emb_size)
    x = normal(1, case.batch, case.emb_size)
    labels = tf.range(case.batch) % case.num_classes

    def gradients(loss):
        def step(x, weight, labels):
            with tf.GradientTape() as tape:
                tape.watch([x, weight])
                value = loss(x, weight, labels)
            return value, *tape.gradient(value, [x, weight])

        return tf.function(step)

    def ours(x, weight, labels):
        share = weight.shape[0] / case.num_classes
        return plsc_tf.linear_cross_entropy(
            x, weight, labels, logits_mb=share * case.logits_mb
        )

    def plain(x, weight, labels):
        logits = tf.matmul(x, weight, transpose_b=True)
        return tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        )

    @tf.function
    def products(x, weight, labels):
        logits = tf.matmul(x, weight, transpose_b=True)
        return tf.matmul(logits, weight), tf.matmul(logits, x, transpose_a=True)

    calls = {"ours": gradients(ours), "products": products}
    if case.plain:
        calls["plain"] = gradients(plain)
    inputs = x, weight, labels
    # Loads and compiles what the step needs.
    classes, examples = WARM
    calls["ours"](x[:examples], weight[:classes], labels[:examples])
    before = machine.reset_peak_rss()
    result = calls["ours"](*inputs)
    held = sum(value.dtype.size * tf.size(value).numpy() for value in result)
    extra = machine.peak_rss() - before - held
    del result
    watch = machine.Stopwatch()
    for _ in range(case.rounds):
        for name, call in calls.items():
            with watch.time(name):
                call(*inputs)[0].numpy()
    seconds, of_cpu = watch.medians()
    return {
        **{f"{name}_s": seconds[name] for name in calls},
        **{f"{name}_cpu_s": of_cpu[name] for name in calls},
        "ratio": seconds["ours"] / seconds["products"],
        "ratio_cpu": of_cpu["ours"] / of_cpu["products"],
        "extra_mb": extra / 1e6,
        "share_of_logits": extra / (4 * case.batch * case.num_classes),
    }


if __name__ == "__main__":
    options.run(main, Case, __doc__)
