"""What a training will need of its devices, before anything is trained.

Nothing of the size of the head is made and no data is read: the head's bytes follow
from its shape, and the backbone's from its graph, of which one copy without a strategy
is built. docs/planner.md has the formulas and how they compare with what is measured.
"""

import dataclasses
import functools

import tensorflow as tf
from absl import logging

from plsc_tf.data.pipeline_options import PipelineOptions
from plsc_tf.heads import base, memory
from plsc_tf.jobs.builders import networks, optimizers, recipe
from plsc_tf.jobs.memory_plan import activations, timeline
from plsc_tf.jobs.run_plan import choose_folder
from plsc_tf.jobs.stage import ORDINARY, Stage
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.memory import Devices, devices, process_memory
from plsc_tf.training import auxiliary
from plsc_tf.training.freezing import is_frozen

# What TensorFlow 2.17 takes on the host, as measured: the graph of a step and what XLA
# compiles for it, for each tile, and for each operation of the backbone's graph.
STEP_PROGRAM = 75e6
COMPILED_PROGRAM = 50e6
TILE_PROGRAM = 0.7e6
OPERATION_PROGRAM = 55e3
# Blocks of random numbers that the C library keeps from when the head was made.
BLOCKS_KEPT = 10
# As they are shown; those of a head's passes even if the fullest moment is another.
ITEMS = (
    "head weights",
    "head slots",
    "kept logits",
    "tile",
    "gathered batch",
    "sampling",
    "backbone weights",
    "backbone slots",
    "batch-norm statistics",
    "gradients",
    "new values",
    "activations",
    "images",
)
HEAD_ITEMS = {"kept logits", "tile"}
# At most so much of a pass is left out of the timeline.
MINOR_SHARE = 0.1
# The largest number of classes is told up to such a share.
CLASSES_SHARE = 1 / 500


@dataclasses.dataclass(frozen=True)
class Backbone:
    """What the backbone needs on one replica, in bytes; auxiliary logits included.

    Attributes:
        weights: trained weights.
        slots: of the optimizer.
        statistics: what a step changes beside them: batch-norm statistics.
        variables: of each trained weight.
        passes: the `activations.Activations` of a pass over `traced_images`.
        traced_images: how many these are.
        image: one image, uint8.
        auxiliary_classes: of the auxiliary logits, whose weights are the last two; 0
            without any.
        frozen: weights that stay as they are.
    """

    weights: int
    slots: int
    statistics: int
    variables: tuple
    passes: activations.Activations
    traced_images: int
    image: int
    auxiliary_classes: int = 0
    frozen: int = 0

    def for_classes(self, classes):
        """A copy whose auxiliary logits are of another number of classes.

        Their weights change, with slots and gradients. That the logits themselves are
        more or fewer is left out: a pass holds much more.
        """
        if not self.auxiliary_classes:
            return self
        asked = [size // self.auxiliary_classes for size in self.variables[-2:]]
        kernel, bias = (size * classes for size in asked)
        weights = self.weights - sum(self.variables[-2:]) + kernel + bias
        gradients = self.passes.gradients
        backward = tuple(
            (key, kernel if key in gradients and size == self.variables[-2] else size)
            for key, size in self.passes.backward
        )
        return dataclasses.replace(
            self,
            weights=weights,
            slots=self.slots * weights // self.weights,
            variables=(*self.variables[:-2], kernel, bias),
            passes=dataclasses.replace(self.passes, backward=backward),
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
    def fullest(self):
        """The `timeline.Fullest` of a device."""
        return timeline.fullest(
            self.head,
            self.backbone,
            self.devices.kind,
            self.settings.optimizer.optimizer,
            self.devices.bytes,
        )

    def items(self):
        """Bytes on a device at its fullest moment, `{what: bytes}`."""
        live, passing = self.fullest.live, memory.held(self.head)
        found = {name: live.get(name, 0) for name in ITEMS}
        found = {
            name: size
            for name, size in found.items()
            if size or (name in HEAD_ITEMS and passing[name])
        }
        allocator = self.fullest.touched - sum(live.values())
        found.update(self._of_stage())
        return {**found, "allocator": allocator, **self._host()}

    def total(self):
        """Most bytes that the fullest device holds at a time."""
        return max(sum(self.items().values()), self.while_made())

    def while_made(self):
        """Bytes on the fullest device while the head's weights are made."""
        found = self.fullest.made
        if self.devices.kind == "CPU":
            # One replica's after the other's.
            beside = memory.drawn(self.head) + self._blocks() + self.process
            found += beside // self.devices.replicas
        return found

    def fits(self):
        """Whether the fullest device has so much memory."""
        most = self.devices.bytes
        return self._least() <= most and self.total() <= most

    def with_head(self, **changes):
        """A copy with attributes of the `HeadLoad` changed, and the devices' number."""
        count = changes.get("replicas", self.devices.replicas)
        changed = dataclasses.replace(self.devices, replicas=count)
        backbone = self.backbone.for_classes(
            changes.get("num_classes", self.head.num_classes)
        )
        return dataclasses.replace(
            self,
            head=self.head.replace(**changes),
            devices=changed,
            backbone=backbone,
        )

    def most_classes(self):
        """About the largest number of classes that fits; 0 where none does."""
        low = self.head.replicas if self.head.sharded else 1

        def fits(classes):
            return self.with_head(num_classes=classes).fits()

        if not fits(low):
            return 0
        # So many need all the memory for their weights.
        high = low * (self.devices.bytes // self.head.row_bytes + 1)
        if self.backbone.auxiliary_classes:
            high = min(high, auxiliary.MOST_CLASSES + 1)
        while high - low > max(1, CLASSES_SHARE * low):
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _least(self):
        """Bytes that are there for certain, which often tells enough, and at once."""
        head, backbone = self.head, self.backbone
        images = head.own_batch // head.parts
        passes = backbone.passes.bytes * images // backbone.traced_images
        return (
            head.rows * (head.row_bytes + head.slot_bytes)
            + backbone.weights
            + backbone.slots
            + int((1 - MINOR_SHARE) * passes)
            + sum(self._host().values())
            + sum(self._of_stage().values())
        )

    def _of_stage(self):
        return self.stage.memory(self.backbone, self.head, self.settings)

    def _host(self):
        """Bytes on the host beside the tensors of a step; 0 on GPUs."""
        if self.devices.kind != "CPU":
            return {}
        share = 1 / self.devices.replicas
        ahead = self.batches_ahead * self.head.global_batch * self.backbone.image
        return {
            "input pipeline": int(ahead * share),
            "programs": int(self._programs() * share),
            "TensorFlow": int(self.process * share),
        }

    def _programs(self):
        """Bytes of graphs and compiled code, of all replicas."""
        head = self.head
        tiles = head.tiles * head.replicas
        # The graph repeats the backbone for every replica and part of a batch.
        copies = head.replicas * head.parts
        compiled = COMPILED_PROGRAM if head.compiled else 0
        graphs = TILE_PROGRAM * tiles
        graphs += OPERATION_PROGRAM * self.backbone.passes.operations * copies
        return STEP_PROGRAM + compiled + graphs + self._blocks()

    def _blocks(self):
        """Bytes that stay with the C library when the head has been made."""
        head = self.head
        block = base.BLOCK_ROWS * head.sub_centers * head.embedding_size * memory.FLOAT
        return BLOCKS_KEPT * block


def plan(settings, settled=False, stage=ORDINARY):
    """The `Job` that the settings describe.

    Args:
        settings: the `Settings`.
        settled: whether folder and global batch are those of a run already.
        stage: the `plsc_tf.jobs.stage.Stage`.

    Raises:
        ValueError: the training would refuse these settings too.
    """
    start = process_memory()
    given = settings.performance
    found = devices(given.num_replicas, given.device_memory_gb)
    settings = networks.completed(settings)
    if not settled and "num_classes" not in settings.given:
        logging.warning(
            "num_classes was not given: this is planned for the default, %d; a "
            "training takes the number of classes from the data where it can.",
            settings.dataset.num_classes,
        )
    if not settled:
        settings, _ = choose_folder(settings, found.replicas)
    recipe.check_parts(settings, found.replicas)
    head = _head_load(settings, found.replicas)
    model = _small_model(settings)
    weights = model.head.arrays().values()
    slots = model.trainer.updater.slots().values()
    head = head.replace(
        embedding_size=model.embedding_size,
        row_bytes=sum(rows.bytes_per_replica()[0] for rows in weights),
        slot_bytes=sum(rows.bytes_per_replica()[0] for rows in slots),
    )
    head.check()
    given = settings.preprocessing
    pipeline = PipelineOptions(
        image_size=given.image_size,
        num_parallel_batches=given.num_parallel_batches,
        prefetch_buffer_size=given.prefetch_buffer_size,
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


def _head_load(settings, replicas):
    """The `HeadLoad` without the bytes per class."""
    given, mixed = settings.head, settings.preprocessing
    return memory.HeadLoad(
        num_classes=settings.dataset.num_classes,
        # Of a network that keeps its own, the small model tells.
        embedding_size=settings.model.emb_size or 1,
        replicas=replicas,
        global_batch=settings.training.global_batch_size,
        parts=settings.optimizer.gradient_accumulation_steps,
        sharded=given.sharded,
        sample_rate=given.sample_rate,
        tile_rows=given.head_tile_rows,
        logits_bytes=given.head_logits_mb * 1e6,
        half=given.head_dtype != "float32",
        compile_rows=base.COMPILE_ROWS,
        clipped=settings.optimizer.max_gradient_norm is not None,
        sub_centers=given.sub_centers,
        labels=2 if mixed.mixup or mixed.cutmix else 1,
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
    model.auxiliary = networks.auxiliary(settings, model.backbone, half)
    optimizer, l2 = optimizers.build(
        settings.optimizer, 0.1, weight_decay=settings.optimizer.weight_decay
    )
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
    found = activations.trace(model, images)
    averages, weights = (
        model.trainer.updater.averages,
        model.trained_network_variables(),
    )
    classes = model.auxiliary.branch.output_shape[1] if model.auxiliary else 0
    shape = [*model.image_size, model.backbone.input_shape[3]]
    return Backbone(
        weights=_bytes(weights),
        slots=_bytes(v for v in model.optimizer.variables if v.shape != ())
        + _bytes(averages.variables if averages else []),
        statistics=_bytes(model.untrained_variables()),
        variables=tuple(_bytes([v]) for v in weights),
        passes=found,
        traced_images=images,
        image=tf.TensorShape(shape).num_elements(),
        auxiliary_classes=classes,
        frozen=_bytes(filter(is_frozen, model.backbone.non_trainable_variables)),
    )


def _bytes(variables):
    return sum(
        tf.TensorShape(v.shape).num_elements() * tf.as_dtype(v.dtype).size
        for v in variables
    )
