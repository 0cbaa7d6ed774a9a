"""Computes the memory that a training run will need before it starts.

The planner does not create the class weights and reads no data. It computes the head's
bytes from its shape, and the backbone's from its graph, which is built once, without a
strategy. docs/planner.md gives the formulas and compares them with measurements.
"""

import bisect
import dataclasses
import math

import tensorflow as tf
from absl import logging

from plsc_tf.data.pipeline import PipelineOptions
from plsc_tf.heads import memory
from plsc_tf.heads.initial import BLOCK_ROWS
from plsc_tf.jobs import dimension_reduction, run_plan
from plsc_tf.jobs.builders import recipe
from plsc_tf.jobs.memory_plan import activations
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.gpu_figures import GPUS
from plsc_tf.parallel.memory import Devices, devices, read_bytes
from plsc_tf.training import auxiliary
from plsc_tf.training.forward import Forward
from plsc_tf.training.weight_rules import is_frozen

# Host memory that TensorFlow 2.17 takes, as measured: for the graph of a step, its XLA
# programs, each tile, and each operation of the backbone's graph.
STEP_PROGRAM, COMPILED_PROGRAM = 75e6, 50e6
TILE_PROGRAM, OPERATION_PROGRAM = 0.7e6, 55e3
# Number of blocks of random numbers, used to initialize the head, that the C library
# does not return to the system.
BLOCKS_KEPT = 10
# TensorFlow's allocator takes memory in ever larger regions and never returns it. The
# unused part is about this share of the large temporary tensors (measured by
# `benchmarks.planner`). On GPUs, it has a single region, so only gaps remain unused;
# their share is a guess.
UNUSED_SHARE = {"CPU": 0.3, "GPU": 0.1}
# TensorFlow's limit for the scratch memory of a convolution.
MOST_WORKSPACE = 2**32


@dataclasses.dataclass(frozen=True)
class Backbone:
    """Memory of the backbone on one replica, with its auxiliary logits, in bytes.

    Attributes:
        weights: bytes of the trained weights.
        slots: bytes of the optimizer's slots and of averaged weights.
        statistics: bytes of other variables that a step changes: batch-norm
            statistics.
        largest: bytes of the largest trained weight.
        activations: peak bytes of a pass over `traced_images` images, without weights
            and gradients.
        operations: number of nodes in the graph of this pass.
        traced_images: number of images in this pass.
        image: bytes of one uint8 image.
        auxiliary: whether the network has auxiliary logits.
        frozen: bytes of the weights that are not trained.
        kernels: the convolutions and products of this pass, see `activations.kernels`;
            empty without figures of the GPU.
    """

    weights: int
    slots: int
    statistics: int
    largest: int
    activations: int
    operations: int
    traced_images: int
    image: int
    auxiliary: bool = False
    frozen: int = 0
    kernels: tuple = ()


@dataclasses.dataclass(frozen=True)
class Job:
    """The properties of a training run that determine its memory.

    Attributes:
        head: the `HeadLoad`.
        backbone: the `Backbone`.
        devices: the `Devices`.
        process: bytes of a process that has started TensorFlow and done nothing else.
        batches_ahead: number of batches that the input pipeline may hold.
        settings: the `Settings` as the training would use them.
    """

    head: memory.HeadLoad
    backbone: Backbone
    devices: Devices
    process: int
    batches_ahead: int
    settings: Settings

    def _moments(self) -> list[dict[str, int]]:
        """Returns the tensors at each moment that may be the peak: `{item: bytes}`."""
        head, backbone = self.head, self.backbone
        images = head.own_batch // head.parts
        gradients, largest = backbone.weights, backbone.largest
        if not head.sharded:
            rows = head.rows * head.row_bytes
            gradients, largest = gradients + rows, max(largest, rows)
        passed = images / backbone.traced_images
        # cuDNN's fast algorithms need about a copy of their operands and result.
        largest_kernel = max((moved for _, moved, _ in backbone.kernels), default=0)
        throughout = {
            **memory.held(head),
            "backbone weights": backbone.weights + backbone.frozen,
            "backbone slots": backbone.slots,
            "batch-norm statistics": 2 * backbone.statistics,
            "images": head.own_batch * backbone.image,
        }
        return [
            # Between the forward and the backward pass of the batch's last part.
            throughout
            | {
                "activations": int(backbone.activations * passed),
                "cuDNN workspace": int(min(MOST_WORKSPACE, largest_kernel * passed)),
                "gradients": gradients if head.parts > 1 else 0,
                "tile": memory.first_pass(head),
            },
            # The exchange packs a copy of all gradients into one tensor.
            throughout | {"gradients": gradients * min(2, head.replicas)},
            # Weights are updated one after another; old and new values coexist.
            throughout | {"gradients": gradients, "new values": 2 * largest},
            throughout
            | {
                "gradients": 0 if head.sharded else backbone.weights,
                "tile": memory.second_pass(head),
            },
        ]

    def items(self) -> dict[str, int]:
        """Returns the bytes on a device when a step's memory peaks, `{item: bytes}`."""
        peak = max(self._moments(), key=lambda moment: sum(moment.values()))
        tensors = {name: size for name, size in peak.items() if size}
        names = ("activations", "gradients", "new values")
        passing = sum(tensors.get(name, 0) for name in names)
        if self.head.sample_rate < 1:
            passing += tensors["head weights"]  # copied once when they are created
        allocator = int(UNUSED_SHARE[self.devices.kind] * passing)
        boost = self.settings.boost
        stage_2 = dimension_reduction.memory(self.backbone, self.head, boost)
        return {**tensors, **stage_2, "allocator": allocator, **self._host()}

    def total(self) -> int:
        """Returns the peak bytes of the fullest device."""
        return max(sum(self.items().values()), self.initialization_bytes())

    def initialization_bytes(self) -> int:
        """Returns the bytes on the fullest device while the head is initialized."""
        device, numpy_rows = memory.making(self.head)
        size = self.backbone.weights + device
        if self.devices.kind == "CPU":
            # Replicas are initialized one after another and share this memory.
            size += (numpy_rows + self._blocks() + self.process) // self.head.replicas
        return size

    def fits(self) -> bool:
        """Returns whether the training fits on the fullest device."""
        return self.total() <= self.devices.bytes

    def with_head(self, **changes) -> "Job":
        """Returns a copy with changed `HeadLoad` attributes."""
        return dataclasses.replace(self, head=dataclasses.replace(self.head, **changes))

    def most_classes(self) -> int:
        """Returns the largest number of classes that fits; 0 if none fits.

        Auxiliary logits, which support few classes, are counted as they are.
        """
        fewest = self.head.replicas if self.head.sharded else 1
        # With this number of classes, the weights alone exceed the memory.
        high = fewest * (self.devices.bytes // self.head.row_bytes + 1)
        if self.backbone.auxiliary:
            high = min(high, auxiliary.MOST_CLASSES + 1)
        return self._largest(range(fewest, high), lambda n: {"num_classes": n})

    def most_images(self) -> int:
        """Returns the largest batch of a replica that fits; 0 if none fits."""
        # More images exceed the memory even before they pass the backbone.
        numbers = range(1, self.devices.bytes // self.backbone.image + 1)
        replicas = self.head.replicas
        return self._largest(numbers, lambda n: {"global_batch": n * replicas})

    def _largest(self, numbers, changes):
        """Returns the largest of the numbers whose changes of the head fit, or 0."""
        index = bisect.bisect(
            numbers, False, key=lambda n: not self.with_head(**changes(n)).fits()
        )
        return numbers[index - 1] if index else 0

    def in_blocks(self) -> "Job":
        """Returns a copy with recompute=blocks.

        Raises:
            ValueError: the network has no blocks.
        """
        settings = self.settings.replace(recompute="blocks")
        images = self.backbone.traced_images
        backbone = _backbone(_small_model(settings), images, settings, self.devices)
        return dataclasses.replace(self, backbone=backbone, settings=settings)

    def collectives(self) -> list[memory.Collective]:
        """Returns the collectives of a step."""
        return memory.collectives(
            self.head,
            self.backbone.weights,
            smoothing=bool(self.settings.head.label_smoothing),
            ranks=2 if self.settings.head.calc_acc else 0,
        )

    def _host(self):
        """Returns host memory besides a step's tensors, per replica; {} on GPUs."""
        if self.devices.kind != "CPU":
            return {}
        head, backbone = self.head, self.backbone
        # The graph contains the backbone once per replica and part of a batch.
        operations = backbone.operations * head.parts * head.replicas
        programs = STEP_PROGRAM + (COMPILED_PROGRAM if head.compiled else 0)
        programs += TILE_PROGRAM * len(head.tiles) * head.replicas
        programs += OPERATION_PROGRAM * operations + self._blocks()
        ahead = self.batches_ahead * head.global_batch * backbone.image
        shared = {"input pipeline": ahead, "programs": programs}
        shared["TensorFlow"] = self.process
        return {name: int(size / head.replicas) for name, size in shared.items()}

    def _blocks(self):
        """Returns the bytes that the C library keeps after the head is initialized."""
        head = self.head
        block = BLOCK_ROWS * head.sub_centers * head.embedding_size * memory.FLOAT
        return BLOCKS_KEPT * block


def plan(settings: Settings) -> Job:
    """Returns the `Job` that the settings describe.

    Raises:
        ValueError: the settings are invalid; a training run would refuse them too.
    """
    process, given = read_bytes("/proc/self/status", "VmRSS"), settings.performance
    gpu = given.device_kind and GPUS[given.device_kind.upper()]
    found = devices(given.num_replicas, given.device_memory_gb, gpu)
    settings = recipe.complete(settings)
    if "num_classes" not in settings.given:
        message = "num_classes is not set: planning for the default, %d classes."
        logging.warning(message, settings.dataset.num_classes)
    settings, _ = run_plan.choose_folder(settings, found.replicas)
    recipe.check_accumulation(settings, found.replicas)
    model = _small_model(settings)
    weights = model.head.arrays().values()
    reduced = settings.boost.reduces and settings.boost.dim_reduce_scope == "all"
    slots = () if reduced else model.trainer.updater.slots().values()
    wide = sum(memory.FLOAT * math.prod(rows.shape[1:]) for rows in weights)
    given, images = settings.head, settings.preprocessing
    head = memory.HeadLoad(
        num_classes=settings.dataset.num_classes,
        embedding_size=model.embedding_size,
        replicas=found.replicas,
        global_batch=settings.training.global_batch_size,
        parts=settings.optimizer.gradient_accumulation_steps,
        row_bytes=sum(rows.bytes_per_replica()[0] for rows in weights),
        wide_bytes=wide if given.sharded else 0,
        slot_bytes=sum(rows.bytes_per_replica()[0] for rows in slots),
        sharded=given.sharded,
        sample_rate=given.sample_rate,
        tile_rows=given.head_tile_rows,
        logits_bytes=given.head_logits_mb * 1e6,
        half=given.head_dtype != "float32",
        clipped=settings.optimizer.max_gradient_norm is not None,
        sub_centers=given.sub_centers,
        device_kind=found.kind,
        weight_dtype=given.head_weight_dtype,
        labels=2 if images.mixup or images.cutmix else 1,
    )
    head.check()
    pipeline = PipelineOptions(
        image_size=images.image_size,
        num_parallel_batches=images.num_parallel_batches,
        prefetch_buffer_size=images.prefetch_buffer_size,
    ).for_batches_of(settings.training.global_batch_size)
    backbone = _backbone(model, head.own_batch // head.parts, settings, found)
    ahead = pipeline.prefetch_buffer_size + pipeline.num_parallel_batches
    return Job(head, backbone, found, process, ahead, settings)


def _small_model(settings):
    """Returns the compiled model with a head of one class, on one device."""
    one_class = {"num_classes": 1, "sample_rate": 1.0, "head_tile_rows": None}
    small = settings.replace(loss_type=f"dist_{settings.head.loss}", **one_class)
    half = recipe.backbone_precision(small)
    strategy = tf.distribute.get_strategy()
    model = recipe.build_model(small.replace(aux_logits_weight=0), strategy, half)
    # Unlike the head, the auxiliary logits get all classes.
    model.auxiliary = recipe.make_auxiliary(settings, model.backbone, half)
    recipe.compile_model(model, settings, 0.1)
    return model


def _forward(model, settings, kind):
    """Returns (what computes the forward pass, whether XLA compiles both passes)."""
    given, gpu = settings.performance, kind == "GPU"
    compiled = gpu if given.jit_compile == "auto" else given.jit_compile == "true"
    compiled &= not settings.model.synchronized_batch_norm
    if not (compiled or gpu or given.recompute == "blocks"):
        return model.forward, False
    # A compiled function would be a single node of the graph.
    blocks, fused = given.recompute == "blocks", gpu or compiled
    return Forward(model, False, blocks, fused), compiled


def _backbone(model, images, settings, devices):
    """Computes the `Backbone` of a model for a pass over this number of images."""
    forward = _forward(model, settings, devices.kind)
    passes, operations = activations.trace(model, images, *forward)
    weights = model.trained_network_variables()
    slots = [v for v in model.optimizer.variables if v.shape != ()]
    if averages := model.trainer.updater.averages:
        slots += averages.variables
    shape = [*model.image_size, model.backbone.input_shape[3]]
    return Backbone(
        weights=_bytes(weights),
        # Reduced weights have no slots.
        slots=0 if settings.boost.reduces else _bytes(slots),
        statistics=_bytes(model.untrained_variables()),
        largest=max((_bytes([v]) for v in weights), default=0),
        activations=passes,
        operations=len(operations),
        traced_images=images,
        image=tf.TensorShape(shape).num_elements(),
        auxiliary=model.auxiliary is not None,
        frozen=_bytes(filter(is_frozen, model.backbone.non_trainable_variables)),
        kernels=tuple(activations.kernels(operations)) if devices.gpu else (),
    )


def _bytes(variables):
    return sum(math.prod(v.shape) * tf.as_dtype(v.dtype).size for v in variables)
