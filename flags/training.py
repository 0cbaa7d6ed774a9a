"""Defines the options for a training run's start, length, batches and devices."""

import functools

from plsc_tf.flags.option import Count, OptionGroup, Positive, option
from plsc_tf.parallel.gpu_figures import GPUS

_LOGITS = "distill=logits"
_dry_run = functools.partial(option, saved=False, applies="dry_run")


class Training(OptionGroup):
    """Options for the start, length, batches and random seed of a training run."""

    task_type: str = option(
        "pretrain",
        "finetune starts from the weights in checkpoint_dir (FastNN)",
        choices="pretrain finetune",
    )
    num_epochs: Positive = option(
        120, "epochs to train (PLSC; FastNN)", aliases="train_epochs"
    )
    stop_at_step: Count = option(
        0, "stop after this step; 0: never", applies="hooks=StopAtStepHook"
    )
    batch_size: Positive = option(
        128,
        "images per replica in a step (PLSC; FastNN)",
        aliases="train_batch_size",
        applies="no global_batch_size",
    )
    global_batch_size: Count = option(
        0, "images per step, of all replicas; 0: batch_size x replicas"
    )
    seed: Count = option(0, "seed of weights, data order, augmentation, dropout")
    deterministic: bool = option(False, "compute the same in each run, bit for bit")

    REFUSED = {
        "task_type=finetune and no checkpoint_dir": "task_type=finetune needs "
        "checkpoint_dir, the folder of the trained weights."
    }


class Distillation(OptionGroup):
    """Options for imitating another network, the teacher; see docs/distillation.md."""

    teacher: str = option("", "checkpoint, export or ONNX file of a network to imitate")
    distill: str | None = option(
        None,
        "what to imitate: embeddings, the distances between them, or the logits of the "
        "same classes",
        choices="embedding relational logits",
    )
    distill_weight: float | None = option(
        None,
        "factor of this loss; None: 50, or 1 for logits",
        within="(0, inf)",
        applies="teacher",
    )
    distill_temperature: float = option(
        4.0, "divisor of both networks' logits", within="(0, inf)", applies=_LOGITS
    )

    REFUSED = {
        "teacher and no distill or distill and no teacher": "Set teacher and distill "
        "together, or neither of them.",
        f"{_LOGITS} and sample_rate<1 or {_LOGITS} and sub_centers>1": "distill=logits "
        "needs all classes, with one center each: leave out the other option.",
    }


class Performance(OptionGroup):
    """Options for replicas, steps per call, and memory planning."""

    num_replicas: Count = option(
        0,
        "GPUs per worker, or logical CPU devices; 0: all GPUs, or one CPU device",
        applies="gpus or alone",
    )
    steps_per_execution: Positive = option(
        1, "steps in one call of TensorFlow (Keras)", aliases="sink_size"
    )
    jit_compile: str = option(
        "auto",
        "compile the networks' passes with XLA; auto: on GPUs (Keras)",
        choices="auto true false",
    )
    recompute: str = option(
        "none",
        "blocks: keep no activations within blocks, and compute them again for the "
        "gradients, which saves memory",
        choices="none blocks",
    )
    tf32: bool | None = option(
        None,
        "compute float32 products in TF32; None: as TensorFlow does, which is true",
        applies="gpus",
    )
    dry_run: bool = option(
        False, "only estimate memory, classes that fit and, for GPUs, time", saved=False
    )
    json: bool = _dry_run(False, "print the plan in JSON")
    device_kind: str | None = _dry_run(
        None,
        "GPU to plan for; this machine need not have one. None: this machine's devices",
        choices=" ".join(GPUS).lower(),
    )
    device_memory_gb: float | None = _dry_run(
        None,
        "memory of a device in GB (10^9 bytes); None: of device_kind or this machine",
        within="(0, inf)",
    )
