"""The model: an embedding network and a classification head, trained together."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.backbones.precision import in_float32
from plsc_tf.data import images as data_images
from plsc_tf.data.pixel_range import check_range
from plsc_tf.parallel.alone import Alone
from plsc_tf.parallel.strategy import gather
from plsc_tf.training import (
    batching,
    freezing,
    keras_arguments,
    keras_methods,
    keras_saving,
    loop,
    several_steps,
    statistics,
    step,
    weight_rules,
)
from plsc_tf.training.loss_scale import from_keras
from plsc_tf.training.momentum import Momentum
from plsc_tf.training.updates import Updater

METRICS = {"accuracy": 1, "top5_accuracy": 5}


class Classifier(keras_methods.KerasMethods, keras_saving.NoKerasSaving, keras.Model):
    """Backbone and head; build it inside `strategy.scope()`.

    Images are uint8 or float in 0 … 255, `[N, height, width, 3]`, wherever they
    enter: the model itself takes them to (x − 127.5) / 128, as PLSC does.

    Example:
        with plsc_tf.strategy().scope():
            model = plsc_tf.Classifier(
                backbone=plsc_tf.backbones.build("resnet50", embedding_size=512),
                head=plsc_tf.ShardedHead(num_classes=85_742))
            model.compile(optimizer=plsc_tf.Momentum(0.1))
        model.fit(plsc_tf.load("ms1m", "train_data", batch_size=1024), epochs=20)

    Args:
        backbone: Keras model from normalised images to embeddings `[N, emb]`.
        head: a `ShardedHead` or `DenseHead`.
        auxiliary: `plsc_tf.training.auxiliary.Auxiliary`, a second classifier in the
            middle of this backbone, for training only.

    Raises:
        ValueError: the backbone's output is not `[N, emb]`.
    """

    def __init__(self, backbone, head, *, auxiliary=None, **kwargs):
        super().__init__(**kwargs)
        outputs = getattr(backbone, "outputs", None)
        if not isinstance(backbone, keras.Model) or not outputs:
            raise ValueError(
                "The backbone must be a keras.Model of known inputs and outputs; "
                "plsc_tf.backbones.from_user makes one of other things, with "
                f"image_shape=(height, width, 3). Received: {backbone!r}"
            )
        shape = tuple(outputs[0].shape)
        if len(outputs) != 1 or len(shape) != 2 or shape[1] is None:
            raise ValueError(
                "The backbone must give embeddings [batch, embedding_size]. "
                f"Received: a backbone with output shape {backbone.output_shape}"
            )
        if None in backbone.input_shape[1:3]:
            raise ValueError(
                "The backbone must say the height and width of its images, as in "
                "keras.Input((112, 112, 3)). Received: a backbone with input shape "
                f"{tuple(backbone.input_shape)}"
            )
        self.backbone = backbone
        self.head = head
        self.auxiliary = auxiliary
        self.strategy = tf.distribute.get_strategy()
        self.embedding_size = shape[1]
        self.image_size = tuple(backbone.input_shape[1:3])
        self.position = loop.Position()
        self.step_result = {}
        self.step_counts = {}
        self.step_batch = None
        self.updater = None
        self.loss_scale = None
        self.accumulation_steps = 1
        self.mixing = None
        self.statistics_differ = False
        self.finish_saving = None
        self.group = Alone()
        self.votes = None
        self.calls = None
        self.stop_voted = False
        self.alive = _nobody_watches
        # A stage of training (`plsc_tf.jobs.stage`) may put its own here.
        self.make_updater = Updater
        self.own_step = None
        self._embed_function = _function(self._distributed_embed)
        head.build(shape[1], self.strategy)
        self.built = True

    def call(self, images, training=False):
        """Embeds images `[N, h, w, 3]` in 0 … 255 to `[N, emb]`."""
        return self.backbone(self.normalise(images), training=training)

    def normalise(self, images):
        """(x − 127.5) / 128 of images in 0 … 255."""
        return (keras.ops.cast(images, keras.config.floatx()) - 127.5) / 128.0

    def trained_network_variables(self):
        """What is trained of the backbone and of its auxiliary classifier, in order."""
        own = list(self.backbone.trainable_variables)
        if self.auxiliary is not None:
            own += self.auxiliary.branch.trainable_variables
        return own

    def untrained_variables(self):
        """What a step changes beside them: moving statistics and random states."""
        networks = [self.backbone]
        if self.auxiliary is not None:
            networks.append(self.auxiliary.branch)
        return [
            variable
            for network in networks
            for variable in network.non_trainable_variables
            if not freezing.is_frozen(variable)
        ]

    def join(self, group, votes):
        """Makes this the model of one worker of a cluster; call it before `compile`.

        Args:
            group: the `plsc_tf.parallel.group.Group` of all workers.
            votes: the `plsc_tf.training.votes.Votes`; None of a process alone.
        """
        self.group = group
        self.votes = votes

    def compile(  # noqa: PLR0913 - Keras's method, and every one has a default
        self,
        optimizer=None,
        *positional,
        metrics=(),
        weighted_metrics=(),
        l2=0.0,
        loss_scale=None,
        gradient_accumulation_steps=1,
        head_slot_dtype=None,
        transport=None,
        averaging=None,
        steps_per_execution=1,
        head_rule=None,
        rate_factors=None,
        weight_decay_on=None,
        mixing=None,
        **others,
    ):
        """Chooses the optimizer of backbone and head, and the training metrics.

        Args:
            optimizer: any Keras optimizer or its name; `plsc_tf.Momentum()` unless
                given. A `LossScaleOptimizer` becomes its inner optimizer and a
                `LossScale` of the same settings.
            metrics: of "accuracy" (top-1) and "top5_accuracy", both without
                margins; they cost one more pass over the logits.
            weighted_metrics: of the same, weighted by `sample_weight` and
                `class_weight`. One that is among the metrics too is called
                "weighted_accuracy", as in Keras.
            l2: factor of an L2 penalty on all weights, for optimizers that have none
                of their own.
            loss_scale: `plsc_tf.LossScale` for a backbone in float16, made inside
                `strategy.scope()`. A step that is not finite is skipped then, and
                the scale follows. Under Keras's global policy mixed_float16 there is
                a dynamic one anyway; `LossScale(1, dynamic=False)` is none.
            gradient_accumulation_steps: parts that each replica's batch is cut into,
                worked on one after the other before the one update: the memory of
                so many times fewer images, and the same training but for batch
                norm, which sees the parts.
            head_slot_dtype: "bfloat16" stores the optimizer's slots of a sharded head
                in half the memory.
            transport: `plsc_tf.parallel.collectives.Transport`, how the backbone's
                gradients travel between replicas.
            averaging: `plsc_tf.training.average.Averaging`: keep moving averages of
                all weights, see `averaged`.
            steps_per_execution: steps of `fit` per call of one `tf.function`, as in
                Keras; callbacks are told of each, see
                `plsc_tf.training.several_steps`.
            head_rule: the head's own `plsc_tf.training.weight_rules.WeightRule`, or
                None.
            rate_factors: multiples of the learning rate for layers of the backbone,
                `{regular expression that their names begin with: factor}`; the last
                one that fits a layer counts.
            weight_decay_on: the same for weight decays in the place of the optimizer's.
            mixing: `plsc_tf.training.mixing.Mixing` of the images of a plain softmax.
            *positional, **others: refused; the error says what takes the place of
                Keras's.

        Raises:
            TypeError: an argument that is none of these.
            ValueError: an unknown metric, a number out of range, or an optimizer that
                does not fit shards.
        """
        keras_arguments.refuse("compile", ("loss",) if positional else others)
        metrics = keras_arguments.names_of_metrics(metrics, METRICS)
        weighted = keras_arguments.names_of_metrics(weighted_metrics, METRICS)
        weighted = {
            f"weighted_{name}" if name in metrics else name: METRICS[name]
            for name in weighted
        }
        keras_arguments.check_own(gradient_accumulation_steps, head_slot_dtype)
        if mixing is not None:
            mixing.check(self)
        several_steps.check(steps_per_execution, self.votes)
        with self.strategy.scope():
            optimizer = keras.optimizers.get(optimizer or Momentum())
            policy = self.dtype_policy.name
            optimizer, loss_scale = from_keras(optimizer, loss_scale, policy)
            super().compile(optimizer=optimizer, auto_scale_loss=False)
        self.steps_per_execution = steps_per_execution
        self.loss_scale = loss_scale
        self.accumulation_steps = gradient_accumulation_steps
        self.mixing = mixing
        self.ranked_metrics = {**{name: METRICS[name] for name in metrics}, **weighted}
        self.weighted_metrics = tuple(weighted)
        head_weights = [] if self.head.sharded else self.head.variables_replicated
        own_rules = weight_rules.of_layers(
            self.backbone, rate_factors or {}, weight_decay_on or {}
        )
        if head_rule is not None:
            own_rules |= {id(variable): head_rule for variable in head_weights}
        self.updater = self.make_updater(
            optimizer,
            self.strategy,
            [*self.trained_network_variables(), *head_weights],
            self.head if self.head.sharded else None,
            l2=l2,
            slot_dtype=head_slot_dtype,
            loss_scale=loss_scale,
            transport=transport,
            votes=self.votes,
            averaging=averaging,
            head_rule=head_rule,
            own_rules=own_rules,
        )
        self._step_function = _function(self.distributed_step)
        self.several_steps_function = _function(self._several_steps)
        self._evaluate_function = _function(self._distributed_evaluate)

    def run_step(self, batch):
        """One step on a per-replica batch of `batching.pad`; see `train_on_batch`.

        Returns:
            what `train_on_batch` does; `"finite": False` for any step that was not
            finite and has changed nothing.
        """
        self._start_averages()
        result = None if self.calls is None else self.calls.outcome(batch)
        if result is None:
            outcome = (self.own_step or self._step_function)(batch)
            result = {
                name: float(self.strategy.experimental_local_results(value)[0])
                for name, value in outcome.items()
            }
        self.statistics_differ = True
        counts = {name: result.pop(name) for name in loop.COUNTS if name in result}
        self.stop_voted = bool(result.pop("stop", False))
        if self.votes is not None:
            self.votes.check_abort(result.pop("aborted"))
        if not result.pop("finite"):
            return {**result, "finite": False}
        self.position.global_step += 1
        self.step_counts = counts
        self.step_result = result
        return dict(result)

    def train_step(self, *batch):
        """The whole step of one replica, see `plsc_tf.training.step`."""
        return step.train_step(self, *batch)

    def embed(self, images, batch_size=120):
        """Embeds images on all replicas, as at inference.

        In a cluster all workers must ask for the same images.

        Args:
            images: `[N, h, w, 3]`, uint8 or float in 0 … 255; other sizes than the
                backbone's are resized.
            batch_size: images at a time over all replicas (PLSC: test_batch_size).

        Returns:
            `[N, embedding_size]` float32, not normalised.
        """
        nothing = np.zeros((0, self.embedding_size), np.float32)
        return np.concatenate([nothing, *self.embed_in_parts(images, batch_size)])

    def embed_in_parts(self, images, batch_size=120):
        """Yields what `embed` returns, batch by batch; it has the arguments."""
        batching.check_rank(np.shape(images), "images")
        batching.check_channels(np.shape(images), self.backbone.input_shape[3])
        check_range(np.asarray(images), "images")
        self.synchronize_statistics()
        replicas = self.strategy.num_replicas_in_sync
        size = batching.padded_size(max(1, min(batch_size, len(images))), replicas)
        for start in range(0, len(images), size):
            self.alive()
            chunk = tf.convert_to_tensor(images[start : start + size])
            chunk = data_images.resize(chunk, self.image_size)
            count = len(chunk)
            chunk = tf.gather(chunk, tf.range(size) % count)
            embedded = self._embed_function(batching.split(self.strategy, (chunk,)))
            local = self.strategy.experimental_local_results(embedded)
            whole = gather(self.strategy, [part.numpy() for part in local])
            yield whole[:count]

    def synchronize_statistics(self):
        """Gives every replica the mean of the replicas' batch-norm statistics.

        Keras lets every replica follow its own batches; only the trained weights
        are equal everywhere. All workers of a cluster must call it.
        """
        if not self.statistics_differ or self.strategy.num_replicas_in_sync == 1:
            return
        for variable, mean in statistics.means(self, statistics.stacked(self)):
            variable.assign(mean)
        self.statistics_differ = False

    def inference_network(self):
        """A plain Keras model from images in 0 … 255 to embeddings, for export."""
        self.synchronize_statistics()
        inputs = keras.Input((*self.image_size, 3), dtype="float32")
        return keras.Model(inputs, self.call(inputs))

    def averaged(self):
        """A context in which the model has the averages of its weights.

        Without `compile(averaging=...)` it changes nothing.
        """
        averages = None if self.updater is None else self.updater.averages
        if averages is None:
            return contextlib.nullcontext()
        self._start_averages()
        return averages.in_use()

    def _start_averages(self):
        averages = self.updater.averages
        if averages is not None and not averages.started:
            averages.start(int(self.optimizer.iterations.numpy()))

    @property
    def batch_parts(self):
        """Parts that a global batch is cut into: the replicas' and accumulation's."""
        return self.strategy.num_replicas_in_sync * self.accumulation_steps

    def distributed_step(self, batch):
        """The step of all replicas, on a per-replica batch of `batching.pad`."""
        return self.strategy.run(self.train_step, args=batch)

    def _several_steps(self, batches):
        return several_steps.run(self, batches)

    def _distributed_embed(self, batch):
        def embed(images):
            return tf.cast(self(images, training=False), tf.float32)

        # Half precision is for training: moving statistics lag behind the batches', and
        # what they normalise badly in the first steps overflows float16.
        with in_float32(self.backbone):
            return self.strategy.run(embed, args=batch)

    def _check_compiled(self):
        if self.updater is None:
            raise ValueError(
                "Call model.compile(optimizer=...) first, inside strategy.scope()."
            )


def _nobody_watches():
    """What `alive` is without a `Watchdog`."""


def _function(function):
    """A `tf.function` as Keras's own trainer makes it, without AutoGraph.

    AutoGraph takes seconds to convert all that is called, and reads the sources
    while the training runs.
    """
    return tf.function(function, autograph=False)
