"""What `--dry_run` plans, beside what training steps take.

Every case is planned by the command and measured in a process of its own: the model of
these options runs a few steps on noise, and its peak of memory is read. What the plan
says of the input pipeline is left out, since there is none here. The last line printed
is one JSON object.

    python -m benchmarks.planner
    python -m benchmarks.planner --cases=kept,recomputed
"""

from benchmarks import children, machine, options
from plsc_tf.flags.option import OptionGroup, option

# Only the head has a size: the embeddings are the pixels.
PIXELS = (
    "--model_name=benchmarks.planner.pixels --image_shape=3,16,32 --num_classes=300000 "
    "--num_replicas=2 --global_batch_size=256"
)
FACES = "--num_classes=1000 --num_replicas=1 --global_batch_size=64"
# Command lines, of which later options override earlier ones.
CASES = {
    "kept": PIXELS,
    "recomputed": f"{PIXELS} --head_logits_mb=0",
    "one_replica": f"{PIXELS} --num_replicas=1",
    "four_replicas": f"{PIXELS} --num_replicas=4 --global_batch_size=64",
    "adam": f"{PIXELS} --global_batch_size=64 --optimizer=adam",
    "half_slots": f"{PIXELS} --optimizer=adam --head_slot_dtype=bfloat16",
    "softmax": f"{PIXELS} --global_batch_size=128 --loss_type=dist_softmax",
    "partial": f"{PIXELS} --sample_rate=0.1",
    "partial_adam": f"{PIXELS} --sample_rate=0.3 --optimizer=adam",
    "partial_one": f"{PIXELS} --num_replicas=1 --sample_rate=0.1",
    "large_tiles": f"{PIXELS} --global_batch_size=128 --head_tile_rows=50000",
    "short": f"{PIXELS} --image_shape=3,8,16 --emb_size=128",
    "accumulated": f"{PIXELS} --gradient_accumulation_steps=2",
    "half_products": f"{PIXELS} --global_batch_size=64 --head_dtype=bfloat16",
    "dense": f"{PIXELS} --num_classes=100000 --loss_type=arcface",
    "dense_one": f"{PIXELS} --num_replicas=1 --loss_type=arcface",
    "iresnet18": f"{FACES} --model_name=iresnet18",
    "iresnet18_two": f"{FACES} --num_replicas=2 --model_name=iresnet18",
    "iresnet18_bf16": f"{FACES} --model_name=iresnet18 --use_bf16",
    "iresnet18_parts": (
        f"{FACES} --model_name=iresnet18 --gradient_accumulation_steps=4"
    ),
    "mobilefacenet": f"{FACES} --model_name=mobilefacenet",
    "resnet10": f"{FACES} --global_batch_size=128 --model_name=resnet10",
    "resnet50": f"{FACES} --global_batch_size=32 --model_name=resnet50",
    # These were planned first and measured then; nothing was fitted to them.
    "iresnet34_adam": (
        f"{FACES} --model_name=iresnet34 --global_batch_size=24 --optimizer=adam"
    ),
    "mobilefacenet_partial": (
        f"{FACES} --model_name=mobilefacenet --global_batch_size=32 "
        "--num_classes=400000 --num_replicas=2 --sample_rate=0.2"
    ),
    "iresnet10_dense": (
        f"{FACES} --model_name=iresnet10 --global_batch_size=48 --num_classes=20000 "
        "--loss_type=softmax --use_bf16"
    ),
}


class PlannerCase(OptionGroup):
    """Which cases to plan and to measure."""

    cases: tuple[str, ...] = option((), "empty: all", choices=" ".join(CASES))
    steps: int = option(8, "steps to run; memory grows in the first ones", lower=1)


def pixels(image_shape, embedding_size):
    """A network whose embedding is the first channel of the image.

    Its only weights are one factor per pixel: a backbone that asks for no gradient
    would let TensorFlow leave out one of the head's products.
    """
    import keras

    image = keras.Input(image_shape)
    embedding = keras.layers.Flatten()(image[..., 0])
    scaled = keras.layers.EinsumDense(
        "be,e->be", embedding_size, kernel_initializer="ones"
    )
    return keras.Model(image, scaled(embedding))


def main(case):
    """Compares plans and measurements, and prints them."""
    with machine.report(case) as figures:
        found = figures["cases"] = {}
        for name in case.cases or CASES:
            one = found[name] = compare(name, case.steps)
            print(
                f"{name:<22} planned {one['planned_gb']:6.3f} GB, measured "
                f"{one['measured_gb']:6.3f} GB ({one['error']:+.1%}); without "
                f"TensorFlow itself {one['planned_own_gb']:6.3f} and "
                f"{one['measured_own_gb']:6.3f} ({one['own_error']:+.1%})",
                flush=True,
            )
        figures["largest"] = {
            name: max(abs(one[name]) for one in found.values())
            for name in ("error", "own_error")
        }


def compare(name, steps):
    """Plan and measurement of one case.

    Returns:
        dict: `planned_gb` and `measured_gb` of the process, `error` of the plan;
        the same with `own_` less what TensorFlow takes when it has only started.
    """
    # A plan that does not fit has status 1.
    planned = children.last_line(
        *("-m", "plsc_tf.train", "--dry_run", "--json", *CASES[name].split())
    )
    measured = children.call(measure, name, steps)
    bytes_of, replicas = planned["bytes"], planned["replicas"]
    step = sum(bytes_of.values()) - bytes_of["input pipeline"]
    whole = max(step, planned["while_made_bytes"]) * replicas
    own = whole - bytes_of["TensorFlow"] * replicas
    grown = measured["peak_rss"] - measured["baseline_rss"]
    return {
        "planned_gb": whole / machine.GB,
        "measured_gb": measured["peak_rss"] / machine.GB,
        "error": whole / measured["peak_rss"] - 1,
        "planned_own_gb": own / machine.GB,
        "measured_own_gb": grown / machine.GB,
        "own_error": own / grown - 1,
        "bytes": {item: size * replicas for item, size in bytes_of.items()},
    }


def measure(name, steps):
    """Peak and baseline of this process's memory when it runs the steps of a case."""
    import keras
    import numpy as np
    import tensorflow as tf

    import plsc_tf
    from plsc_tf.jobs.builders import recipe
    from plsc_tf.options import cli
    from plsc_tf.training import batching

    settings = cli.parse(CASES[name].split())
    strategy = plsc_tf.strategy(settings.performance.num_replicas)
    baseline = machine.peak_rss()
    half = recipe.backbone_precision(settings)
    model = recipe.build_model(settings, strategy, half)
    # So small a rate that the noise is not learned by heart.
    recipe.compile_model(model, settings, 1e-6)
    size = settings.training.global_batch_size
    generator = np.random.default_rng(0)
    shape = (size, *model.image_size, 3)
    images = tf.constant(generator.integers(0, 256, shape).astype(np.uint8))
    labels = tf.constant(generator.integers(settings.dataset.num_classes, size=size))
    batch = (images, labels, tf.ones(size, keras.config.floatx()))
    batch = batching.split(strategy, batch)
    for _ in range(steps):
        model.trainer.run_step(batch)
    return {"peak_rss": machine.peak_rss(), "baseline_rss": baseline}


if __name__ == "__main__":
    options.run(main, PlannerCase, __doc__)
