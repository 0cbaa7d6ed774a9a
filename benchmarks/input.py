"""The training pipeline beside bare JPEG decoding of the same bytes.

The last line printed is one JSON object; benchmarks/README.md says what its figures
mean.

    python -m benchmarks.input --images=lfw112/train
    python -m benchmarks.input                        # synthetic images
    python -m benchmarks.input --consumers=8 --step_ms=40       # replicas that wait
"""

import base64
import dataclasses
import functools
import os
import tempfile
import time

from benchmarks import jpegs, machine, options
from plsc_tf.flags.option import OptionGroup, option


class InputCase(OptionGroup):
    """The images and how to read them."""

    images: str = option(
        "", "folder of JPEG files, nested or not; empty: synthetic images"
    )
    count: int = option(8192, "maximum number of images", lower=1)
    repeat: int = option(
        5, "copies of each image in an epoch, so that its start matters less", lower=1
    )
    image_size: int = option(112, "height and width in pixels", lower=1)
    global_batch: int = option(256, "images in a batch", lower=1)
    threads: int | None = option(
        None, "num_preprocessing_threads; None: the pipeline's default", lower=1
    )
    rounds: int = option(5, "alternating rounds of measurements", lower=1)
    preprocessing: tuple[str, ...] = option(
        (), "preprocessings to measure from TFRecords; empty: all"
    )
    consumers: int = option(
        0, "replicas that take 128 images each per step; 0: no replicas", lower=0
    )
    step_ms: float = option(
        40.0, "milliseconds of a step, longer if decoding takes longer", lower=0.1
    )


def main(case):
    """Measures and prints."""
    with machine.report(case) as figures:
        figures |= consume(case) if case.consumers else measure(case)


def measure(case):
    """Times decoding and the pipelines by turns.

    Returns:
        the figures to print; rates are in images per second.
    """
    import tensorflow as tf

    from plsc_tf.data.pipeline import PipelineOptions

    data = _pictures(case)
    threads = case.threads or PipelineOptions().num_preprocessing_threads
    with tempfile.TemporaryDirectory(prefix="plsc_tf-") as folder:
        sources = _sources(data, folder, case.repeat)
        runs = {"decode": _decoding(data, case, threads, tf.io.decode_jpeg)}
        names = case.preprocessing or _preprocessings()
        for name in sorted(_ARITHMETIC & set(names)):
            bare = functools.partial(_bare, name, case.image_size)
            runs[f"bare {name}"] = _decoding(data, case, threads, bare)
        kinds = [("tfrecord", name) for name in names]
        for kind, name in (*kinds, ("base64", "face"), ("files", "face")):
            runs[f"{kind} {name}"] = _pipeline(sources[kind], case, threads, name)
        rates, processor = _timed(runs, case, len(data) * case.repeat)
    pipeline = rates.get("tfrecord face")
    return {
        "decode_img_s": rates["decode"],
        "pipeline_img_s": pipeline,
        "ratio": pipeline and round(pipeline / rates["decode"], 3),
        "img_s": rates,
        "ratios": {k: round(v / rates["decode"], 3) for k, v in rates.items()},
        "ratios_to_bare": {
            name: round(rates[f"tfrecord {name}"] / rates[f"bare {name}"], 3)
            for name in sorted(_ARITHMETIC & set(names))
        },
        "processor_us": processor,
        "pictures": len(data),
        "bytes_per_picture": round(sum(map(len, data)) / len(data)),
        "threads": threads,
    }


# Images of a replica per step, and the share of the pipeline's rate that they may need.
PER_CONSUMER, SHARE = 128, 0.8


def consume(case):
    """Measures how long replicas that only sleep wait for their batches.

    Returns:
        the figures to print; rates are in images per second.
    """
    from concurrent.futures import ThreadPoolExecutor

    import plsc_tf
    from plsc_tf.data.pipeline import PipelineOptions
    from plsc_tf.training import batching

    strategy, size = plsc_tf.strategy(case.consumers), case.consumers * PER_CONSUMER
    case = dataclasses.replace(case, global_batch=size)
    data = _pictures(case)
    threads = case.threads or PipelineOptions().num_preprocessing_threads
    with tempfile.TemporaryDirectory(prefix="plsc_tf-") as folder:
        source = _sources(data, folder, case.repeat)["tfrecord"]
        name = (case.preprocessing or ("face",))[0]
        runs = {name: _pipeline(source, case, threads, name)}
        rates, processor = _timed(runs, case, len(data) * case.repeat)
        allowed = size / (SHARE * rates[name])
        step, waits = max(case.step_ms / 1000, allowed), []
        with ThreadPoolExecutor(case.consumers) as pool:
            batches = iter(runs[name](0))
            time.sleep(step)  # batches are ready before the first step
            done = before = time.perf_counter()
            for images, labels in batches:
                batch = batching.pad(images, labels, None, size)
                batching.send(strategy, batch, pool=pool)()
                # As in training: the step is launched at once, and only then are
                # the results of the step before it awaited.
                launched = time.perf_counter()
                waits.append(max(0.0, launched - done))
                before, done = done, max(launched, done) + step
                time.sleep(max(0.0, before - time.perf_counter()))
    waits = waits[1:]
    cores = len(os.sched_getaffinity(0))
    return {
        "waiting": round(sum(waits) / (sum(waits) + step * len(waits)), 4),
        "step_ms": round(1000 * step, 1),
        "steps": len(waits),
        "decoding_is_the_limit": step > case.step_ms / 1000,
        "pipeline_img_s": rates[name],
        "img_s_per_core": round(1e6 / processor[name]),
        "cores": cores,
        "cores_for_25000_img_s": round(25000 * processor[name] / 1e6, 1),
    }


def _timed(runs, case, count):
    """Returns median images per second and CPU microseconds per image."""
    watch = machine.Stopwatch()
    for turn in range(case.rounds + 1):
        for name, batches in runs.items():
            dataset = batches(turn)
            # The first one traces and warms up.
            with watch.time(name if turn else f"{name}, first"):
                for _ in dataset:
                    pass
    seconds, cpu_seconds = watch.medians()
    rates = {name: round(count / seconds[name]) for name in runs}
    used = {name: round(1e6 * cpu_seconds[name] / count, 1) for name in runs}
    return rates, used


def _decoding(data, case, threads, decode):
    """Batches of what `tf.io.decode_jpeg` alone makes of bytes in memory."""
    import tensorflow as tf

    from plsc_tf.data.pipeline import PipelineOptions, dataset_options

    contents = tf.constant(data)

    @tf.autograph.experimental.do_not_convert
    def one(content):
        return decode(content, channels=3)

    def batches(turn):
        del turn
        dataset = tf.data.Dataset.from_tensor_slices(contents).repeat(case.repeat)
        dataset = dataset.map(one, num_parallel_calls=threads)
        dataset = dataset.batch(case.global_batch)
        dataset = dataset.prefetch(PipelineOptions().prefetch_buffer_size)
        return dataset.with_options(dataset_options())

    return batches


# Preprocessings whose own arithmetic takes longer than decoding a small image.
_ARITHMETIC = {"cifarnet", "inception", "vgg"}


def _bare(name, size, content, channels):
    """Decodes an image and changes it by bare calls of `tf.image`.

    Args:
        name: one of `_ARITHMETIC`; its random crop has the mean size.
        size: height and width of the result, in pixels.
        content: string scalar, the encoded image.
        channels: number of channels.
    """
    import tensorflow as tf

    image = tf.io.decode_jpeg(content, channels=channels)
    if name == "cifarnet":
        image = tf.image.resize_with_crop_or_pad(image, size + 8, size + 8)
        image = tf.image.random_crop(image, [size, size, channels])
    else:
        side = round(size * {"vgg": 0.62, "inception": 0.71}[name])
        image = tf.image.random_crop(image, [side, side, channels])
        image = tf.image.resize(image, [size, size], antialias=True)
        image = tf.cast(tf.clip_by_value(tf.round(image), 0, 255), tf.uint8)
    image = tf.image.random_flip_left_right(image)
    if name == "cifarnet":
        image = tf.image.random_brightness(image, 63 / 255)
        image = tf.image.random_contrast(image, 0.2, 1.8)
    if name == "inception":
        image = tf.image.random_brightness(image, 32 / 255)
        image = tf.image.random_saturation(image, 0.5, 1.5)
        image = tf.image.random_hue(image, 0.2)
        image = tf.image.random_contrast(image, 0.5, 1.5)
    return image


def _pipeline(source, case, threads, name):
    from plsc_tf.data.pipeline import Batches, PipelineOptions

    made = Batches(
        source,
        case.global_batch,
        options=PipelineOptions(
            image_size=(case.image_size, case.image_size),
            preprocessing=name,
            augmentation="own",
            num_preprocessing_threads=threads,
        ),
    )
    return made.epoch


def _preprocessings():
    from plsc_tf.data import preprocessing

    return preprocessing.names()


def _pictures(case):
    """Returns at most `count` encoded images."""
    if case.images:
        return jpegs.read(case.images, case.count)
    return jpegs.draw(min(case.count, 2048), case.image_size)


def _sources(data, folder, repeat):
    """Writes each image several times to TFRecords, base64 text and files."""
    import tensorflow as tf

    from plsc_tf.data.readers.base64_text import base64_files
    from plsc_tf.data.readers.image_files import image_list
    from plsc_tf.data.readers.tfrecord import encode_example, tfrecords

    records, lines = os.path.join(folder, "records"), os.path.join(folder, "lines")
    with tf.io.TFRecordWriter(records) as writer, open(lines, "wb") as stream:
        for number, content in enumerate(data):
            writer.write(encode_example(content, b"jpeg", 0))
            stream.write(base64.b64encode(content) + b"\t0\n")
            with open(os.path.join(folder, f"{number}.jpg"), "wb") as picture:
                picture.write(content)
    listed = "".join(f"{number}.jpg 0\n" for number in range(len(data)))
    with open(os.path.join(folder, "label.txt"), "w", encoding="utf-8") as stream:
        stream.write(listed * repeat)
    return {
        "tfrecord": tfrecords([records] * repeat, num_classes=1),
        "base64": base64_files([lines] * repeat),
        "files": image_list(folder),
    }


if __name__ == "__main__":
    options.run(main, InputCase, __doc__)
