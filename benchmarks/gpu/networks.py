"""Step D: the step of a whole network, and a whole training on JPEG files."""

import json
import pathlib
import statistics
import tempfile
import time

import numpy as np

from benchmarks import jpegs
from benchmarks.gpu import heads, smoke

# Drawing takes longer than encoding, so figures are used several times.
DRAWN = 2000


def make_model(*, model_name, image_size, emb_size, num_classes, dtype, **compiled):
    """Returns a compiled `Classifier` on one replica.

    Args:
        model_name: name of the backbone.
        image_size: height and width of the images.
        emb_size: length of the embeddings.
        num_classes: classes of the ArcFace head.
        dtype: "float32", "float16" or "bfloat16", in which the backbone computes.
        **compiled: further arguments of `Classifier.compile`.
    """
    import keras

    import plsc_tf

    keras.utils.set_random_seed(0)
    with plsc_tf.strategy(1).scope():
        backbone = plsc_tf.backbones.build(
            model_name,
            embedding_size=emb_size,
            image_shape=(image_size, image_size, 3),
            dtype=dtype,
        )
        model = plsc_tf.Classifier(backbone, plsc_tf.ShardedHead(num_classes))
        if dtype == "float16":
            compiled["loss_scale"] = plsc_tf.LossScale(2.0**10)
        model.compile(plsc_tf.Momentum(0.01, momentum=0.9, l2=5e-4), **compiled)
    return model


def make_batch(*, image_size, num_classes, global_batch):
    """Returns random uint8 images and labels."""
    generator = np.random.default_rng(0)
    shape = (global_batch, image_size, image_size, 3)
    images = generator.integers(0, 256, shape, np.uint8)
    return images, generator.integers(num_classes, size=global_batch)


def step(*, global_batch, steps, jit_compile, recompute="none", **network):
    """Seconds of a step whose batch is already on the GPU, and whose results are read.

    Args:
        global_batch: images of a step.
        steps: timed steps.
        jit_compile: whether XLA compiles the network.
        recompute: "blocks", or "none".
        **network: arguments of `make_model`.
    """
    import tensorflow as tf

    from plsc_tf.training import batching

    model = make_model(**network, jit_compile=jit_compile, recompute=recompute)
    images, labels = make_batch(
        image_size=network["image_size"],
        num_classes=network["num_classes"],
        global_batch=global_batch,
    )
    ones = tf.ones([global_batch])
    batch = tf.constant(images), tf.constant(labels), ones
    batch = batching.split(model.strategy, batch)
    start = time.perf_counter()
    first = model.trainer.run_step(batch)["loss"]
    begun = time.perf_counter() - start
    model.trainer.run_step(batch)
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        loss = model.trainer.run_step(batch)["loss"]
        seconds.append(time.perf_counter() - start)
    if not loss < 10 * first:
        raise ArithmeticError(f"The loss went from {first} to {loss}.")
    found = statistics.median(seconds)
    return {
        "network": network["model_name"],
        "batch": global_batch,
        "dtype": network["dtype"],
        "xla": jit_compile,
        "recompute": recompute,
        "first_step_s": begun,
        "step_ms": 1e3 * found,
        "fastest_ms": 1e3 * min(seconds),
        "images_per_second": global_batch / found,
        "memory_gb": peak_gb(),
        "loss": loss,
    }


def peak_gb():
    """The peak memory of the first GPU, or of the process, in GB."""
    import tensorflow as tf

    from benchmarks import machine

    if not tf.config.list_logical_devices("GPU"):
        return machine.peak_rss() / machine.GB
    return tf.config.experimental.get_memory_info("GPU:0")["peak"] / machine.GB


def peer(*, checkout, python, **config):
    """A step of arcface_torch's `train_v2.py` on images that are given.

    Args:
        checkout: folder with its code, or "".
        python: a Python with PyTorch.
        **config: see `benchmarks.peer_training`.
    """
    from benchmarks import peer as of_head

    heads.require(checkout, python)
    found = of_head.run_ranks(
        python,
        {"checkout": str(of_head.find_checkout(checkout)), "ranks": 1, **config},
        module="benchmarks.peer_training",
    )[0]
    seconds = statistics.median(found["steps_s"])
    return {
        "network": f"{config['network']}, arcface_torch",
        "batch": config["global_batch"],
        "dtype": config["precision"],
        "first_step_s": found["first_step_s"],
        "step_ms": 1e3 * seconds,
        "fastest_ms": 1e3 * min(found["steps_s"]),
        "images_per_second": config["global_batch"] / seconds,
        "memory_gb": found["peak_gb"],
        "loss": found["losses"][-1],
        "details": found,
    }


def training(*, images, count, num_classes, image_size, flags):
    """A whole training on JPEG images in a TFRecord.

    Args:
        images: folder of JPEG files; "" to draw them.
        count: images of the training set.
        num_classes: its classes.
        image_size: height and width of drawn images.
        flags: further options of `plsc_tf.train`.
    """
    with tempfile.TemporaryDirectory(prefix="plsc_tf-gpu-") as folder:
        data, run = pathlib.Path(folder, "data"), pathlib.Path(folder, "run")
        data.mkdir()
        if images:
            contents = jpegs.read(images, count)
        else:
            contents = jpegs.draw(min(count, DRAWN), image_size)
        _write(data / "train.tfrecord", contents, count, num_classes)
        start = time.perf_counter()
        smoke.command(
            "train",
            "--dataset_name=folder",
            f"--dataset_dir={data}",
            "--train_files=train.tfrecord",
            f"--num_classes={num_classes}",
            f"--num_sample_per_epoch={count}",
            f"--image_shape=3,{image_size},{image_size}",
            f"--model_save_dir={run}",
            *flags,
        )
        results = json.loads((run / "results.json").read_text("utf-8"))
        return {
            "network": "whole training",
            "images_per_second": results["images_per_second"],
            "step_ms": 1e3 * results["seconds_per_step"],
            "loss": results["loss"],
            "memory_gb": peak_gb(),
            "training_s": time.perf_counter() - start,
            "kb_per_image": sum(map(len, contents)) / len(contents) / 1e3,
            "details": {"flags": flags},
        }


def _write(path, contents, count, num_classes):
    import tensorflow as tf

    from plsc_tf.data.readers.tfrecord import encode_example

    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(count):
            content = contents[number % len(contents)]
            writer.write(encode_example(content, b"jpeg", number % num_classes))
