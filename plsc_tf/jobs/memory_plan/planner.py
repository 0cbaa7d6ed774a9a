"""The memory that a training will need, computed before anything is trained.

Nothing of the size of the head is made and no data is read: the head's bytes follow
from its shape, and the backbone's from its graph, of which one copy without a strategy
is built. docs/planner.md has the formulas and compares them with measurements.
"""

import dataclasses
import functools

import tensorflow as tf
from absl import logging

from plsc_tf.data.pipeline import PipelineOptions
from plsc_tf.heads import memory
from plsc_tf.heads.initial import BLOCK_ROWS
from plsc_tf.jobs.builders import optimizers, recipe
from plsc_tf.jobs.memory_plan import activations
from plsc_tf.jobs.run_plan import choose_folder
from plsc_tf.jobs.stage import ORDINARY, Stage
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.memory import Devices, devices, process_memory
from plsc_tf.training import auxiliary
from plsc_tf.training.freezing import is_frozen

# Taken by TensorFlow 2.17 on the host, as measured: the graph of a step and its XLA
# programs, for each tile, and for each operation of the backbone's graph.
STEP_PROGRAM = 75e6
COMPILED_PROGRAM = 50e6
TILE_PROGRAM = 0.7e6
OPERATION_PROGRAM = 55e3
# Blocks of random numbers that the C library keeps from when the head was made.
BLOCKS_KEPT = 10
# TensorFlow's allocator takes memory in ever larger regions and never returns it: about
# so much more than large tensors that come and go, measured by `benchmarks.planner`.
UNUSED_SHARE = 0.3
# The largest number of classes is searched for up to such a share.
CLASSES_SHARE = 1 / 500


@dataclasses.dataclass(frozen=True)
class Backbone:
    """What the backbone needs on one replica, in bytes; auxiliary logits included.

    Attributes:
        weights: trained weights.
        slots: of the optimizer.
        statistics: other variables that a step changes: batch-norm statistics.
        largest: the largest trained weight.
        activations: of a pass over `traced_images`, without weights and gradients.
        operations: nodes of this pass's graph.
        traced_images: number of these images.
        image: one image, uint8.
        auxiliary_bytes: weights of the auxiliary logits per class; 0 without any.
        auxiliary_classes: number of these classes.
        frozen: weights that stay as they are.
    """

    weights: int
    slots: int
    statistics: int
    largest: int
    activations: int
    operations: int
    traced_images: int
    image: int
    auxiliary_bytes: int = 0
    auxiliary_classes: int = 0
    frozen: int = 0

    def for_classes(self, classes: int) -> "Backbone":
        """A copy whose auxiliary logits are of another number of classes.

        Their weights change, with slots and gradients. That the logits themselves are
        more or fewer is left out: a pass holds much more.
        """
        if not self.auxiliary_classes:
            return self
        more = self.auxiliary_bytes * (classes - self.auxiliary_classes)
        weights = self.weights + more
        return dataclasses.replace(
            self,
            weights=weights,
            slots=self.slots * weights // self.weights,
            largest=max(self.largest, self.auxiliary_bytes * classes),
            auxiliary_classes=classes,
        )


@dataclasses.dataclass(frozen=True)
class Job:
    """A training, as far as its memory depends on it.

    Attributes:
        head: the `HeadLoad`.
        backbone: the `Backbone`.
        devices: the `Devices`.
        process: bytes of a process that has only started TensorFlow.
        batches_ahead: batches that the input pipeline may hold.
        settings: the `Settings` as the training would use them.
        stage: the `plsc_tf.jobs.stage.Stage` of it.
    """

    head: memory.HeadLoad
    backbone: Backbone
    devices: Devices
    process: int
    batches_ahead: int
    settings: Settings
    stage: Stage = ORDINARY

    @functools.cached_property
    def tensors(self) -> dict[str, int]:
        """Bytes of a device's tensors at the fullest moment of a step."""
        return max(self._moments(), key=lambda moment: sum(moment.values()))

    def _moments(self) -> list[dict[str, int]]:
        """Bytes of the tensors when a device may be fullest, `{item: bytes}` each."""
        head, backbone = self.head, self.backbone
        images = head.own_batch // head.parts
        gradients, largest = backbone.weights, backbone.largest
        if not head.sharded:
            rows = head.rows * head.row_bytes
            gradients, largest = gradients + rows, max(largest, rows)
        throughout = {
            **memory.held(head),
            "backbone weights": backbone.weights + backbone.frozen,
            "backbone slots": backbone.slots,
            "batch-norm statistics": 2 * backbone.statistics,
            "images": head.own_batch * backbone.image,
        }
        return [
            # The turn from the forward to the backward pass, in the last part.
            throughout
            | {
                "activations": backbone.activations * images // backbone.traced_images,
                "gradients": gradients if head.parts > 1 else 0,
                "tile": memory.first_pass(head),
            },
            # Gradients are packed into one piece for the exchange.
            throughout | {"gradients": gradients * min(2, head.replicas)},
            # New values are made next to the old ones, one weight after the other.
            throughout | {"gradients": gradients, "new values": 2 * largest},
            throughout
            | {
                "gradients": 0 if head.sharded else backbone.weights,
                "tile": memory.second_pass(head),
            },
        ]

    def items(self) -> dict[str, int]:
        """Bytes on a device at its fullest moment, `{item: bytes}`."""
        tensors = {name: size for name, size in self.tensors.items() if size}
        passing = sum(
            tensors.get(name, 0) for name in ("activations", "gradients", "new values")
        )
        if self.head.sample_rate < 1:
            passing += tensors["head weights"]  # of which there were two copies
        allocator = int(UNUSED_SHARE * passing)
        stage = self.stage.memory(self.backbone, self.head, self.settings)
        return {**tensors, **stage, "allocator": allocator, **self._host()}

    def total(self) -> int:
        """Most bytes that the fullest device holds at a time."""
        return max(sum(self.items().values()), self.while_made())

    def while_made(self) -> int:
        """Bytes on the fullest device while the head's weights are made."""
        device, numpy_rows = memory.making(self.head)
        made = self.backbone.weights + device
        if self.devices.kind == "CPU":
            # One replica's after the other's.
            host = numpy_rows + self._blocks() + self.process
            made += host // self.devices.replicas
        return made

    def fits(self) -> bool:
        """Whether the fullest device has so much memory."""
        return self.total() <= self.devices.bytes

    def with_head(self, **changes) -> "Job":
        """A copy with attributes of the `HeadLoad` changed, and the devices' number."""
        head = self.head.replace(**changes)
        return dataclasses.replace(
            self,
            head=head,
            devices=dataclasses.replace(self.devices, replicas=head.replicas),
            backbone=self.backbone.for_classes(head.num_classes),
        )

    def most_classes(self) -> int:
        """About the largest number of classes that fits; 0 if none does."""
        low = self.head.replicas if self.head.sharded else 1
        if not self.with_head(num_classes=low).fits():
            return 0
        # The weights of this number fill the memory.
        high = low * (self.devices.bytes // self.head.row_bytes + 1)
        if self.backbone.auxiliary_classes:
            high = min(high, auxiliary.MOST_CLASSES + 1)
        while high - low > max(1, CLASSES_SHARE * low):
            middle = (low + high) // 2
            fits = self.with_head(num_classes=middle).fits()
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _host(self):
        """Bytes on the host beside the tensors of a step; none on GPUs."""
        if self.devices.kind != "CPU":
            return {}
        head, backbone = self.head, self.backbone
        # The graph repeats the backbone for every replica and part of a batch.
        operations = backbone.operations * head.parts * head.replicas
        programs = STEP_PROGRAM + (COMPILED_PROGRAM if head.compiled else 0)
        programs += TILE_PROGRAM * len(head.tiles) * head.replicas
        programs += OPERATION_PROGRAM * operations + self._blocks()
        shared = {
            "input pipeline": self.batches_ahead * head.global_batch * backbone.image,
            "programs": programs,
            "TensorFlow": self.process,
        }
        return {name: int(size / head.replicas) for name, size in shared.items()}

    def _blocks(self):
        """Bytes that stay with the C library when the head has been made."""
        head = self.head
        block = BLOCK_ROWS * head.sub_centers * head.embedding_size * memory.FLOAT
        return BLOCKS_KEPT * block


def plan(settings: Settings, stage: Stage = ORDINARY) -> Job:
    """The `Job` that the settings describe.

    Args:
        settings: the `Settings`.
        stage: the `plsc_tf.jobs.stage.Stage`.

    Raises:
        ValueError: the training would refuse these settings too.
    """
    start, asked = process_memory(), settings.performance
    found = devices(asked.num_replicas, asked.device_memory_gb)
    settings = recipe.completed(settings)
    if "num_classes" not in settings.given:
        logging.warning(
            "num_classes was not given: planning for the default, %d. A training takes "
            "the number of classes from the data if it can.",
            settings.dataset.num_classes,
        )
    settings, _ = choose_folder(settings, found.replicas)
    recipe.check_parts(settings, found.replicas)
    model = _small_model(settings)
    weights = model.head.arrays().values()
    slots = model.trainer.updater.slots().values()
    given, images = settings.head, settings.preprocessing
    head = memory.HeadLoad(
        num_classes=settings.dataset.num_classes,
        embedding_size=model.embedding_size,
        replicas=found.replicas,
        global_batch=settings.training.global_batch_size,
        parts=settings.optimizer.gradient_accumulation_steps,
        row_bytes=sum(rows.bytes_per_replica()[0] for rows in weights),
        slot_bytes=sum(rows.bytes_per_replica()[0] for rows in slots),
        sharded=given.sharded,
        sample_rate=given.sample_rate,
        tile_rows=given.head_tile_rows,
        logits_bytes=given.head_logits_mb * 1e6,
        half=given.head_dtype != "float32",
        clipped=settings.optimizer.max_gradient_norm is not None,
        sub_centers=given.sub_centers,
        labels=2 if images.mixup or images.cutmix else 1,
    )
    head.check()
    pipeline = PipelineOptions(
        image_size=images.image_size,
        num_parallel_batches=images.num_parallel_batches,
        prefetch_buffer_size=images.prefetch_buffer_size,
    ).for_batches_of(settings.training.global_batch_size)
    backbone = _backbone(model, head.own_batch // head.parts)
    backbone, head = stage.trimmed(backbone, head, settings)
    return Job(
        head=head,
        backbone=backbone,
        devices=found,
        process=start,
        batches_ahead=pipeline.prefetch_buffer_size + pipeline.num_parallel_batches,
        settings=settings,
        stage=stage,
    )


def _small_model(settings):
    """The compiled model with a head of one class, on one device."""
    small = settings.replace(
        num_classes=1,
        loss_type=f"dist_{settings.head.loss}",
        sample_rate=1.0,
        head_tile_rows=None,
    )
    half = recipe.backbone_precision(small)
    strategy = tf.distribute.get_strategy()
    model = recipe.build_model(small.replace(aux_logits_weight=0), strategy, half)
    # These are of all classes.
    model.auxiliary = recipe.make_auxiliary(settings, model.backbone, half)
    optimizer, l2 = optimizers.build(settings.optimizer, 0.1)
    model.compile(
        optimizer,
        l2=l2,
        head_slot_dtype=settings.head.head_slot_dtype,
        averaging=optimizers.averaging(settings.optimizer),
        # For what `compile` checks; none of them takes memory.
        rate_factors=settings.learning_rate.layer_factors,
        weight_decay_on=settings.optimizer.layer_decays,
        mixing=recipe.make_mixing(settings),
    )
    return model


def _backbone(model, images):
    """The `Backbone` of a model in a pass over so many images."""
    passes, operations = activations.trace(model, images)
    averages, weights = (
        model.trainer.updater.averages,
        model.trained_network_variables(),
    )
    classes = model.auxiliary.branch.output_shape[1] if model.auxiliary else 0
    # The weights and biases of the auxiliary logits come last.
    per_class = _bytes(weights[-2:]) // classes if classes else 0
    shape = [*model.image_size, model.backbone.input_shape[3]]
    return Backbone(
        weights=_bytes(weights),
        slots=_bytes(v for v in model.optimizer.variables if v.shape != ())
        + _bytes(averages.variables if averages else []),
        statistics=_bytes(model.untrained_variables()),
        largest=max((_bytes([v]) for v in weights), default=0),
        activations=passes,
        operations=operations,
        traced_images=images,
        image=tf.TensorShape(shape).num_elements(),
        auxiliary_bytes=per_class,
        auxiliary_classes=classes,
        frozen=_bytes(filter(is_frozen, model.backbone.non_trainable_variables)),
    )


def _bytes(variables):
    return sum(
        tf.TensorShape(v.shape).num_elements() * tf.as_dtype(v.dtype).size
        for v in variables
    )
