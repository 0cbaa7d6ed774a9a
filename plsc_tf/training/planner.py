"""What a training will need of its devices, before anything is trained.

Nothing of the size of the head is made and no data is read: the head's bytes follow
from its shape, and the backbone's from its graph, of which one copy without a strategy
is built. docs/planner.md has the formulas and how they compare with what is measured.
"""

import dataclasses

import tensorflow as tf

from plsc_tf.heads import base, memory
from plsc_tf.parallel.memory import Devices, devices, process_memory
from plsc_tf.settings import Settings
from plsc_tf.training import activations, optimizers, recipe
from plsc_tf.training.plan import choose_folder

# What TensorFlow 2.17 takes on the host, as measured: the graph of a step and what XLA
# compiles for it, for each tile, and for each operation of the backbone's graph.
STEP_PROGRAM = 55e6
COMPILED_PROGRAM = 50e6
TILE_PROGRAM = 0.7e6
OPERATION_PROGRAM = 50e3
# Share of what comes and goes that its allocator leaves unused: freed memory is not
# given out again in parts when a request needs more than half of it.
WASTE = {"activations": 0.13, "kept logits": 0.04, "head slots": 0.05}
# Copies of the mirrored weights: their gradients, and these summed, scaled or clipped.
GRADIENT_COPIES = 2


@dataclasses.dataclass(frozen=True)
class Backbone:
    """What the backbone needs on one replica, in bytes.

    Attributes:
        weights: trained weights.
        slots: of the optimizer.
        statistics: weights that are not trained, such as batch-norm statistics.
        activations: of a pass over one image.
        operations: nodes of its graph.
        image: one image, uint8.
        unknown: tensors that are not counted, see `activations.Activations`.
    """

    weights: int
    slots: int
    statistics: int
    activations: float
    operations: int
    image: int
    unknown: int = 0


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
    """

    head: memory.HeadLoad
    backbone: Backbone
    devices: Devices
    process: int
    batches_ahead: int
    settings: Settings

    def items(self):
        """Bytes on the fullest device, `{what: bytes}`; on GPUs only what is there."""
        head, backbone = self.head, self.backbone
        images = head.own_batch // head.parts
        found = {
            **memory.held(head),
            "backbone weights": backbone.weights,
            "backbone slots": backbone.slots,
            "backbone gradients": GRADIENT_COPIES * backbone.weights,
            "batch-norm statistics": 2 * backbone.statistics,
            "activations": int(images * backbone.activations),
            "images": head.own_batch * backbone.image,
        }
        found["allocator"] = int(sum(WASTE[name] * found[name] for name in WASTE))
        if self.devices.kind == "CPU":
            share = 1 / self.devices.replicas
            ahead = self.batches_ahead * head.global_batch * backbone.image
            found["input pipeline"] = int(ahead * share)
            found["programs"] = int(self._programs() * share)
            found["TensorFlow"] = int(self.process * share)
        return {name: size for name, size in found.items() if size}

    def while_made(self):
        """Bytes on the fullest device while the head's weights are made."""
        beside = memory.while_made(self.head)
        found = self.head.rows * self.head.row_bytes + self.backbone.weights
        if self.devices.kind == "CPU":
            # One replica's after the other's.
            return found + (beside + self.process) // self.devices.replicas
        return found + beside

    def total(self):
        """Most bytes that the fullest device holds at a time."""
        return max(sum(self.items().values()), self.while_made())

    def fits(self):
        """Whether the fullest device has so much memory."""
        return self.total() <= self.devices.bytes

    def with_head(self, **changes):
        """A copy with attributes of the `HeadLoad` changed, and the devices' number."""
        count = changes.get("replicas", self.devices.replicas)
        changed = dataclasses.replace(self.devices, replicas=count)
        return dataclasses.replace(
            self, head=self.head.replace(**changes), devices=changed
        )

    def most_classes(self):
        """The largest number of classes that fits; 0 where none does."""
        fewest = self.head.replicas if self.head.sharded else 1

        def fits(classes):
            return self.with_head(num_classes=classes).fits()

        if not fits(fewest):
            return 0
        low, high = fewest, 2 * fewest
        while fits(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _programs(self):
        """Bytes of graphs and compiled code, of all replicas."""
        head = self.head
        tiles = head.tiles * head.replicas
        operations = self.backbone.operations * head.replicas
        compiled = COMPILED_PROGRAM if head.compiled else 0
        graphs = TILE_PROGRAM * tiles + OPERATION_PROGRAM * operations
        return STEP_PROGRAM + compiled + graphs


def plan(settings):
    """The `Job` that the settings describe.

    Args:
        settings: the `Settings`.

    Raises:
        ValueError: the training would refuse these settings too.
    """
    start = process_memory()
    given = settings.performance
    found = devices(given.num_replicas, given.device_memory_gb)
    settings, _ = choose_folder(settings, found.replicas)
    recipe.check_parts(settings, found.replicas)
    head = _head_load(settings, found.replicas)
    model = _small_model(settings)
    weights = model.head.arrays().values()
    slots = model.updater.slots().values()
    head = head.replace(
        embedding_size=model.embedding_size,
        row_bytes=sum(rows.bytes_per_replica()[0] for rows in weights),
        slot_bytes=sum(rows.bytes_per_replica()[0] for rows in slots),
    )
    head.check()
    pipeline = settings.preprocessing
    return Job(
        head=head,
        backbone=_backbone(model, head.own_batch // head.parts),
        devices=found,
        process=start,
        batches_ahead=pipeline.prefetch_buffer_size + pipeline.num_parallel_batches,
        settings=settings,
    )


def _head_load(settings, replicas):
    """The `HeadLoad` without the bytes per class."""
    given = settings.head
    return memory.HeadLoad(
        num_classes=settings.dataset.num_classes,
        embedding_size=settings.model.emb_size,
        replicas=replicas,
        global_batch=settings.model.global_batch_size,
        parts=settings.optimizer.gradient_accumulation_steps,
        sharded=given.sharded,
        sample_rate=given.sample_rate,
        tile_rows=given.head_tile_rows,
        logits_bytes=given.head_logits_mb * 1e6,
        half=given.head_dtype != "float32",
        compile_rows=base.COMPILE_ROWS,
        clipped=settings.model.max_gradient_norm is not None,
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
    model = recipe.build_model(small, tf.distribute.get_strategy(), half)
    optimizer, l2 = optimizers.build(
        settings.optimizer, 0.1, weight_decay=settings.model.weight_decay
    )
    model.compile(optimizer, l2=l2, head_slot_dtype=settings.head.head_slot_dtype)
    return model


def _backbone(model, images):
    """The `Backbone` of a model in a pass over so many images."""
    found = activations.trace(model, images)
    shape = [*model.image_size, model.backbone.input_shape[3]]
    return Backbone(
        weights=_bytes(model.backbone.trainable_variables),
        slots=_bytes(v for v in model.optimizer.variables if v.shape != ()),
        statistics=_bytes(model.backbone.non_trainable_variables),
        activations=found.bytes / images,
        operations=found.operations,
        image=tf.TensorShape(shape).num_elements(),
        unknown=found.unknown,
    )


def _bytes(variables):
    return sum(
        tf.TensorShape(v.shape).num_elements() * tf.as_dtype(v.dtype).size
        for v in variables
    )
