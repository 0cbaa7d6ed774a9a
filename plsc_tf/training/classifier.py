"""Contains `Classifier`: a backbone and a classification head, trained together."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.heads.base import Head
from plsc_tf.heads.heads import describe
from plsc_tf.parallel.collectives import Transport
from plsc_tf.training import (
    batching,
    forward,
    inference,
    keras_limits,
    several_steps,
    state,
    trainer,
    user_data,
    weight_rules,
)
from plsc_tf.training.auxiliary import Auxiliary
from plsc_tf.training.average import Averaging
from plsc_tf.training.callbacks import Validation
from plsc_tf.training.distillation import Distillation
from plsc_tf.training.loss_scale import LossScale, from_keras
from plsc_tf.training.mixing import Mixing
from plsc_tf.training.optimizers import Momentum
from plsc_tf.training.sentinel import Sentinel


@keras_limits.refused
class Classifier(keras.Model):
    """A backbone with a classification head; create it inside `strategy.scope()`.

    It takes images `[N, height, width, 3]` in 0 ... 255, uint8 or float, and
    normalizes them as PLSC does.

    Example:
        ```python
        with plsc_tf.strategy().scope():
            model = plsc_tf.Classifier(
                backbone=plsc_tf.backbones.build("resnet50", embedding_size=512),
                head=plsc_tf.ShardedHead(num_classes=85_742))
            model.compile(optimizer=plsc_tf.Momentum(0.1))
        model.fit(plsc_tf.load("ms1m", "train_data", batch_size=1024), epochs=20)
        ```

    Args:
        backbone: Keras model from normalized images to embeddings `[N, emb]`.
        head: a `ShardedHead` or `DenseHead`.
        auxiliary: `plsc_tf.training.auxiliary.Auxiliary`, a second classifier on a
            middle layer of this backbone, used only in training.

    Raises:
        ValueError: the backbone's output is not `[N, emb]`, or images vary in size.
    """

    def __init__(
        self,
        backbone: keras.Model,
        head: Head,
        *,
        auxiliary: Auxiliary | None = None,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        keras_limits.check_backbone(backbone)
        self.backbone, self.head, self.auxiliary = backbone, head, auxiliary
        self.strategy = tf.distribute.get_strategy()
        self.embedding_size = backbone.output_shape[1]
        self.image_size = tuple(backbone.input_shape[1:3])
        self.trainer = trainer.Trainer(self)
        self.loss_scale: LossScale | None = None
        self.accumulation_steps = 1
        self.mixing: Mixing | None = None
        self.distillation: Distillation | None = None
        self._embed_function = inference.compiled(self, inference.embed_step)
        self._evaluate_function = inference.compiled(self, inference.evaluate_step)
        head.build(self.embedding_size, self.strategy)
        self.built = True

    def call(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Computes embeddings `[N, emb]` of images `[N, h, w, 3]` in 0 … 255."""
        return self.backbone(self.normalize(images), training=training)

    def normalize(self, images: tf.Tensor) -> tf.Tensor:
        """Returns (x − 127.5) / 128 for images x in 0 … 255."""
        return (keras.ops.cast(images, keras.config.floatx()) - 127.5) / 128.0

    def forward(
        self, images: tf.Tensor, labels: tf.Tensor, sample_weights: tf.Tensor
    ) -> forward.Outcome:
        """Runs the networks in training mode, see `plsc_tf.training.forward.plain`."""
        return forward.plain(self, images, labels, sample_weights)

    def networks(self) -> list[keras.Model]:
        """Returns the backbone and, if any, the branches that only training needs."""
        others = self.auxiliary, self.distillation
        branches = (other.branch for other in others if other is not None)
        return [self.backbone, *(one for one in branches if one is not None)]

    def trained_network_variables(self) -> list[keras.Variable]:
        """Returns the trainable variables of all `networks()`, in order."""
        return [v for network in self.networks() for v in network.trainable_variables]

    def untrained_variables(self) -> list[keras.Variable]:
        """Returns what a step changes without gradients: statistics, random states."""
        fixed = [v for n in self.networks() for v in n.non_trainable_variables]
        return [v for v in fixed if not weight_rules.is_frozen(v)]

    def compile(  # noqa: PLR0913 - Keras's method; all arguments have defaults
        self,
        optimizer: Any = None,
        *positional,
        metrics: str | Iterable[str] = (),
        weighted_metrics: str | Iterable[str] = (),
        l2: float = 0.0,
        loss_scale: LossScale | None = None,
        gradient_accumulation_steps: int = 1,
        head_slot_dtype: str = "float32",
        transport: Transport | None = None,
        averaging: Averaging | None = None,
        steps_per_execution: int = 1,
        head_rule: weight_rules.WeightRule = weight_rules.COMMON,
        rate_factors: Mapping[str, float] | None = None,
        weight_decay_on: Mapping[str, float] | None = None,
        mixing: Mixing | None = None,
        distillation: Distillation | None = None,
        jit_compile: bool | str = "auto",
        recompute: str = "none",
        **others,
    ) -> None:
        """Sets the optimizer of backbone and head, and the training metrics.

        Args:
            optimizer: a Keras optimizer or its name; default `plsc_tf.Momentum()`.
                A `LossScaleOptimizer` becomes its optimizer and a `LossScale`.
            metrics: "accuracy" (top-1), "top5_accuracy" or both, computed without
                margins; they cost one more pass over the logits.
            weighted_metrics: the same, weighted by `sample_weight` and `class_weight`.
            l2: factor of an L2 penalty, for optimizers that have none.
            loss_scale: `plsc_tf.LossScale` for a backbone in float16, created inside
                `strategy.scope()`; dynamic by default under Keras's mixed_float16.
            gradient_accumulation_steps: number of parts of each replica's batch, whose
                gradients are summed for one update; batch norm works on each part.
            head_slot_dtype: "bfloat16" halves a sharded head's optimizer slots, "int8"
                quarters them.
            transport: `plsc_tf.parallel.collectives.Transport` for the gradients.
            averaging: `plsc_tf.training.average.Averaging` of all weights.
            steps_per_execution: steps per call of one `tf.function`, see
                `plsc_tf.training.several_steps`.
            head_rule: the head's `plsc_tf.training.weight_rules.WeightRule`.
            rate_factors: `{regular expression of layer names: factor of the learning
                rate}`; the last match applies.
            weight_decay_on: `{regular expression: weight decay}` in the same way; it
                replaces the optimizer's weight decay.
            mixing: `plsc_tf.training.mixing.Mixing` of the images, for plain softmax.
            distillation: `plsc_tf.training.distillation.Distillation` of a teacher.
            jit_compile: whether XLA compiles the networks' passes and their update;
                "auto": on GPUs.
            recompute: "blocks" keeps only the inputs of each block of the network and
                computes its activations again in the backward pass; "none".
            *positional, **others: not accepted; the error names the replacement.

        Raises:
            TypeError: an unknown argument.
            ValueError: an unknown metric, a number out of range, or an optimizer that
                cannot update shards.
        """
        keras_limits.refuse("compile", ("loss",) if positional else others)
        metrics, weighted = keras_limits.metrics(metrics, weighted_metrics)
        keras_limits.check_own(gradient_accumulation_steps, head_slot_dtype, self.head)
        if mixing is not None:
            mixing.check(self)
        if distillation is not None:
            distillation.build(self)
        self.distillation = distillation
        several_steps.check(steps_per_execution, self.trainer)
        self.trainer.forward = forward.make(self, jit_compile, recompute)
        with self.strategy.scope():
            optimizer = keras.optimizers.get(optimizer or Momentum())
            policy = self.dtype_policy.name
            optimizer, loss_scale = from_keras(optimizer, loss_scale, policy)
            super().compile(optimizer=optimizer, auto_scale_loss=False)
        self.steps_per_execution, self.loss_scale = steps_per_execution, loss_scale
        self.accumulation_steps, self.mixing = gradient_accumulation_steps, mixing
        self.ranked_metrics = metrics | weighted
        self.weighted_metrics = tuple(weighted)
        head, factors, decays = self.head, rate_factors or {}, weight_decay_on or {}
        of_head = [] if head.sharded else head.variables_replicated
        layer_rules = weight_rules.of_layers(self.backbone, factors, decays)
        layer_rules |= dict.fromkeys(map(id, of_head), head_rule)
        self.trainer.updater = self.trainer.updater_class(
            optimizer,
            self.strategy,
            [*self.trained_network_variables(), *of_head],
            head if head.sharded else None,
            l2=l2,
            slot_dtype=head_slot_dtype,
            loss_scale=loss_scale,
            transport=transport or Transport(),
            votes=self.trainer.votes,
            averaging=averaging,
            head_rule=head_rule,
            layer_rules=layer_rules,
            jit_compile=forward.is_compiled(self.strategy, jit_compile),
        )
        # AutoGraph would take seconds to convert every function that is called.
        run = functools.partial(several_steps.run, self.trainer)
        self.trainer.step_function = tf.function(run, autograph=False)

    def fit(  # noqa: PLR0913 - Keras's arguments of `fit`
        self,
        x: Any,
        y: Any = None,
        *,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Any = None,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Mapping[int, float] | None = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_freq: int | Sequence[int] = 1,
        **options,
    ) -> keras.callbacks.History:
        """Trains the model, with the interface of `keras.Model.fit`.

        Args:
            x: data returned by `plsc_tf.load`, a `tf.data.Dataset` of global batches
                (images, labels[, weights]), or an array of images.
            batch_size: images per global batch if `x` is an array; 32 by default.
            validation_data: (images, labels[, weights]) or any data that `x` accepts.
                For classes not in the training set, use `plsc_tf.Verification`.
            steps_per_epoch: maximum number of steps per epoch. With a
                `tf.data.Dataset`, each epoch continues where the previous one ended,
                and the data set restarts when it is exhausted.
            **options: `initial_step`, `stop_at_step` and `sentinel`, see
                `plsc_tf.training.trainer.Trainer.fit`.
            Others: as in Keras.

        Returns:
            `keras.callbacks.History`.
        """
        self.trainer.check_compiled()
        keras_limits.refuse("fit", options, trainer.FIT_OPTIONS)
        keras_limits.check_callbacks(callbacks)
        batching.check_class_weight(class_weight)
        done = self.trainer.position.global_step - options.get("initial_step", 0)
        given = {"batch_size": batch_size, "sample_weight": sample_weight}
        given |= {"shuffle": shuffle, "begun": (done, initial_epoch)}
        data = user_data.training_data(x, y, **given)
        if validation_data is not None:
            batches = user_data.validation_batches(
                validation_data, batch_size, validation_steps
            )
            others = keras_limits.listed(callbacks)
            first = Validation(batches, validation_freq, validation_steps, others)
            callbacks = [first, *others]
        options |= {"verbose": 1 if verbose == "auto" else verbose}
        options |= {"initial_epoch": initial_epoch, "steps_per_epoch": steps_per_epoch}
        given = {"epochs": epochs, "callbacks": callbacks, "class_weight": class_weight}
        return self.trainer.fit(data, **given, **options)

    def evaluate(
        self,
        x: Any,
        y: Any = None,
        *,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
    ) -> float | list[float] | dict[str, float]:
        """Computes the loss and the compiled metrics on labeled images.

        The networks run in inference mode. The loss has margins, the metrics do not.

        Args:
            x: as in `fit`; data returned by `plsc_tf.load` is read in file order and
                without augmentation.
            Others: as in Keras.

        Returns:
            the loss and the metrics in the order of `compile`, in Keras's format.

        Raises:
            ValueError: the data does not have the required form or has no examples.
        """
        self.trainer.check_compiled()
        given = {"batch_size": batch_size, "sample_weight": sample_weight}
        data = user_data.evaluation_data(x, y, **given)
        user_data.check_endless(data, steps, "steps")
        self.synchronize_statistics()
        results = inference.evaluate(
            self, self._evaluate_function, data, steps, callbacks, verbose
        )
        return results if return_dict else inference.values(results)

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        steps: int | None = None,
    ) -> np.ndarray:
        """Computes embeddings of images, with the interface of `keras.Model.predict`.

        It returns no class scores, because the head's shards are not gathered; for
        scores, use the signature `classify` of an export.

        Args:
            x: as in `evaluate`, or a `tf.data.Dataset` of batches of images only.
            Others: as in Keras.

        Returns:
            `[N, embedding_size]` float32, not normalized.
        """
        return inference.predict(self, x, batch_size, verbose, steps)

    def train_on_batch(
        self,
        images: Any,
        labels: Any,
        sample_weight: Any = None,
        class_weight: Mapping[int, float] | None = None,
        return_dict: bool = True,
    ) -> float | list[float] | dict[str, float]:
        """Runs one step on a global batch, over all replicas.

        Args:
            images: `[global_batch, h, w, 3]` in 0 ... 255.
            labels: `[global_batch]` integers in [0, num_classes).
            sample_weight, class_weight: as in Keras; the loss is Σ weight · loss /
                global_batch.
            return_dict: if False, returns a float or a list, like `evaluate`.

        Returns:
            dict of floats: `loss` and the metrics; with a loss scale also
            `"finite": False` if the step was skipped.

        Raises:
            FloatingPointError: the loss or a gradient is NaN or infinite without a loss
                scale; names the first such tensor. The weights are unchanged.
        """
        self.trainer.check_compiled()
        batch = user_data.one_batch(self, class_weight, images, labels, sample_weight)
        result = self.trainer.run_step(batch)
        if self.loss_scale is None and not result.get("finite", True):
            Sentinel().handle(self, batch)
        return result if return_dict else inference.values(result)

    def summary(
        self, *sizes, print_fn: Callable[[str], None] | None = None, **options
    ) -> None:
        """Prints Keras's summary and the head's description; arguments as in Keras."""
        super().summary(*sizes, print_fn=print_fn, **options)
        (print_fn or print)(describe(self.head))

    def test_on_batch(
        self, x: Any, y=None, sample_weight=None, return_dict: bool = False
    ) -> float | list[float] | dict[str, float]:
        """Runs `evaluate` on arrays that form one global batch."""
        given = {"sample_weight": sample_weight, "return_dict": return_dict}
        return self.evaluate(x, y, batch_size=max(1, len(x)), verbose=0, **given)

    def predict_on_batch(self, x: Any) -> np.ndarray:
        """Runs `predict` on one array of images, as one batch."""
        return self.predict(x, batch_size=max(1, len(x)), verbose=0)

    def embed(self, images: Any, batch_size: int = inference.BATCH) -> np.ndarray:
        """Computes embeddings on all replicas, in inference mode.

        Args:
            images: `[N, h, w, 3]` in 0 ... 255, the same on all workers; they are
                resized to the backbone's input size.
            batch_size: images per batch over all replicas (PLSC: test_batch_size).

        Returns:
            `[N, embedding_size]` float32, not normalized.
        """
        nothing = np.zeros((0, self.embedding_size), np.float32)
        return np.concatenate([nothing, *self.embed_in_parts(images, batch_size)])

    def embed_in_parts(
        self, images: Any, batch_size: int = inference.BATCH
    ) -> Iterator[np.ndarray]:
        """Yields the embeddings batch by batch; takes the arguments of `embed`."""
        return inference.in_parts(self, self._embed_function, images, batch_size)

    def synchronize_statistics(self) -> None:
        """Sets every replica's batch-norm statistics to their mean over all replicas.

        Keras updates them separately on each replica. All workers must call this.
        """
        state.synchronize(self)

    def inference_network(self) -> keras.Model:
        """Returns a Keras model from images in 0 … 255 to embeddings, for export."""
        self.synchronize_statistics()
        inputs = keras.Input((*self.image_size, 3), dtype="float32")
        return keras.Model(inputs, self.call(inputs))
