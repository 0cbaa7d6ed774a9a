"""Keras's `fit`, `evaluate` and `predict`, with its weights and validation."""

import contextlib
import itertools
import sys

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.backbones.precision import in_float32
from plsc_tf.data.faults import READ_ERRORS
from plsc_tf.data.pixel_range import check_range
from plsc_tf.heads import description
from plsc_tf.parallel import collectives
from plsc_tf.training import (
    batching,
    diagnosis,
    keras_arguments,
    keras_saving,
    loop,
    user_data,
)
from plsc_tf.training.callbacks import Validation


class KerasMethods:
    """`fit`, `evaluate` and `predict` of a `Classifier`; before `keras.Model`."""

    def fit(  # noqa: PLR0913 - Keras's own arguments of `fit`
        self,
        x,
        y=None,
        *,
        batch_size=None,
        epochs=1,
        verbose="auto",
        callbacks=None,
        validation_data=None,
        shuffle=True,
        class_weight=None,
        sample_weight=None,
        initial_epoch=0,
        steps_per_epoch=None,
        validation_steps=None,
        validation_freq=1,
        **options,
    ):
        """Trains; `keras.Model.fit` with a loop of our own, see `training.loop`.

        Args:
            x: what `plsc_tf.load` returns, a `tf.data.Dataset` of global batches
                (images, labels[, weights]), or an array of images.
            y: labels when `x` is an array.
            batch_size: images per global batch when `x` is an array; 32 by default.
            epochs: number of the last epoch + 1, as in Keras.
            verbose: 0, 1, 2 or "auto", as in Keras.
            callbacks: Keras callbacks.
            validation_data: (images, labels[, weights]) or what `x` may be, to
                `evaluate` after epochs, for `val_loss` and `val_` metrics.
                `plsc_tf.Verification` is for classes that are not trained.
            shuffle: whether an array is shuffled.
            class_weight: `{label: weight}`, as in Keras.
            sample_weight: `[N]` when `x` is an array.
            initial_epoch: number of the first epoch.
            steps_per_epoch: cuts epochs to so many steps; a `tf.data.Dataset` goes on
                with the next epoch where it was, and begins anew at its end.
            validation_steps: batches of a validation; None: all.
            validation_freq: epochs between two validations, or numbers of epochs,
                counted from 1, after which there is one.
            **options: `initial_step` and `stop_at_step`, see
                `plsc_tf.training.loop.fit`.

        Returns:
            `keras.callbacks.History`.
        """
        self._check_compiled()
        keras_arguments.refuse(
            "fit", options, ("initial_step", "stop_at_step", "sentinel")
        )
        keras_saving.check_callbacks(callbacks)
        done = self.position.global_step - options.get("initial_step", 0)
        data = user_data.training_data(
            x,
            y,
            batch_size=batch_size,
            sample_weight=sample_weight,
            class_weight=class_weight,
            shuffle=shuffle,
            begun=(done, initial_epoch),
        )
        if validation_data is not None:
            found = user_data.validation_batches(validation_data, batch_size)
            user_data.check_endless(found, validation_steps, "validation_steps")
            own = listed(callbacks)
            validation = Validation(found, validation_freq, validation_steps, own)
            callbacks = [validation, *own]
        with _abandoned(listed(callbacks)):
            return loop.fit(
                self,
                data,
                epochs=epochs,
                verbose=1 if verbose == "auto" else verbose,
                callbacks=callbacks,
                initial_epoch=initial_epoch,
                steps_per_epoch=steps_per_epoch,
                **options,
            )

    def evaluate(
        self,
        x,
        y=None,
        *,
        batch_size=None,
        verbose="auto",
        sample_weight=None,
        steps=None,
        callbacks=None,
        return_dict=False,
    ):
        """Loss and compiled metrics on labelled images, as at inference.

        The loss is the one that is trained, with its margins; metrics are without.

        Args:
            x: what `plsc_tf.load` returns, taken in the order of its files and without
                augmentation, a `tf.data.Dataset` of (images, labels[, weights])
                batches, or an array of images `[N, h, w, 3]`.
            y: labels when `x` is an array.
            batch_size: images per global batch when `x` is an array.
            verbose: 0, 1, 2 or "auto", as in Keras.
            sample_weight: `[N]` when `x` is an array.
            steps: cuts the data to so many batches.
            callbacks: Keras callbacks, of which those for tests are called.
            return_dict: whether to return `{name: value}` instead of a list.

        Returns:
            the loss and the metrics in the order of `compile`; the loss alone, as a
            float, where there are none.

        Raises:
            ValueError: the data has another form, or holds no example.
        """
        self._check_compiled()
        data = user_data.evaluation_data(
            x, y, batch_size=batch_size, sample_weight=sample_weight
        )
        user_data.check_endless(data, steps, "steps")
        self.synchronize_statistics()
        if not isinstance(callbacks, keras.callbacks.CallbackList):
            callbacks = keras.callbacks.CallbackList(
                callbacks,
                model=self,
                add_progbar=verbose != 0,
                verbose=1 if verbose == "auto" else verbose,
                epochs=1,
                steps=steps or getattr(data, "steps_per_epoch", None),
            )
        callbacks.on_test_begin()
        sums = {}
        for number, batch in enumerate(_distributed(self, data, steps)):
            callbacks.on_test_batch_begin(number)
            for name, value in self._evaluate_function(batch).items():
                local = self.strategy.experimental_local_results(value)[0]
                sums[name] = sums.get(name, 0.0) + float(local)
            callbacks.on_test_batch_end(number, {})
        if not sums:
            raise ValueError("There is nothing to evaluate: no example.")
        results = loop.Position(sums=sums).means(self.weighted_metrics)
        callbacks.on_test_end(results)
        return results if return_dict else _in_order(results)

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        """Embeddings of images; `embed` under Keras's name.

        Scores of classes are no output of this model: a head of millions of classes
        is never gathered. The export's signature `classify` gives the best classes.

        Args:
            x: array of images `[N, h, w, 3]` in 0 … 255, a `tf.data.Dataset` of
                batches of images, or of tuples that begin with one, or what
                `plsc_tf.load` returns, in the order of its files and without
                augmentation.
            batch_size: images at a time over all replicas.
            verbose: 0, 1, 2 or "auto", as in Keras.
            steps: cuts a data set to so many batches.
            callbacks: refused.

        Returns:
            `[N, embedding_size]` float32, not normalised.
        """
        if callbacks:
            raise ValueError("predict calls no callbacks: leave callbacks out.")
        size = batch_size or 120
        x = user_data.in_order(x)
        if user_data.is_ours(x):
            x = x.epoch(0)
        if isinstance(x, tf.data.Dataset):
            user_data.check_endless(x, steps, "steps")
            x = x.take(steps) if steps else x
            count = int(x.cardinality())
            found = self._embed_batches(x, batch_size)
        else:
            x = np.asarray(x)
            replicas = self.strategy.num_replicas_in_sync
            step = batching.padded_size(max(1, min(size, len(x))), replicas)
            count = -(-len(x) // step)
            found = self.embed_in_parts(x, size) if len(x) else [self.embed(x)]
        bar = keras.utils.Progbar(
            count if count > 0 else None, verbose=1 if verbose == "auto" else verbose
        )
        parts = []
        for part in found:
            parts.append(part)
            bar.update(len(parts), finalize=False)
        bar.update(len(parts), finalize=True)
        if not parts:
            raise ValueError("There is nothing to embed: the data set is empty.")
        return np.concatenate(parts)

    def train_on_batch(
        self, images, labels, sample_weight=None, class_weight=None, return_dict=True
    ):
        """Runs exactly one step on a global batch, over all replicas.

        Args:
            images: `[global_batch, h, w, 3]` in 0 … 255.
            labels: `[global_batch]` integers in [0, num_classes).
            sample_weight: `[global_batch]`; the loss is Σ weight · loss / global_batch,
                as in Keras.
            class_weight: `{label: weight}`; multiplied with sample_weight.
            return_dict: False returns what `evaluate` does: a list, or the loss alone.

        Returns:
            dict of floats: `loss` and the metrics; with a loss scale also
            `"finite": False` for a step that was skipped.

        Raises:
            ValueError: a label is out of range.
            FloatingPointError: the loss or a gradient is not finite and there is no
                loss scale; names the first such tensor. The weights are unchanged then.
        """
        self._check_compiled()
        labels = batching.whole_labels(labels)
        weights = user_data.weights_of(labels, sample_weight, class_weight)
        batching.check_batch(images, labels, weights, self.head.num_classes)
        batching.check_shape(np.shape(images), self.backbone.input_shape)
        check_range(np.asarray(images), "images")
        size = batching.padded_size(len(labels), self.batch_parts)
        batch = batching.pad(
            tf.convert_to_tensor(images),
            tf.convert_to_tensor(labels, tf.int64),
            None if weights is None else tf.convert_to_tensor(weights, tf.float32),
            size,
        )
        batch = batching.split(self.strategy, batch)
        result = self.run_step(batch)
        if self.loss_scale is None and not result.get("finite", True):
            raise diagnosis.error(self, batch)
        return result if return_dict else _in_order(result)

    def summary(self, line_length=None, positions=None, print_fn=None, **options):
        """Prints Keras's summary of the network, and what the head holds.

        Args:
            line_length, positions, print_fn, **options: of `keras.Model.summary`.
        """
        super().summary(line_length, positions, print_fn, **options)
        (print_fn or _print_line)(description.describe(self.head))

    def test_on_batch(self, x, y=None, sample_weight=None, return_dict=False):
        """`evaluate` on one global batch of arrays."""
        return self.evaluate(
            x,
            y,
            batch_size=max(1, len(x)),
            verbose=0,
            sample_weight=sample_weight,
            return_dict=return_dict,
        )

    def predict_on_batch(self, x):
        """`predict` on one array of images."""
        return self.predict(x, batch_size=max(1, len(x)), verbose=0)

    def _embed_batches(self, dataset, batch_size):
        for element in dataset:
            images = element[0] if isinstance(element, tuple) else element
            yield self.embed(images, batch_size or len(images))

    def _distributed_evaluate(self, batch):
        # For the reasons of `Classifier.embed`.
        with in_float32(self.backbone):
            return self.strategy.run(evaluate_step, args=(self, *batch))


def _in_order(results):
    """Loss and metrics as Keras returns them without names."""
    values = [value for name, value in results.items() if name != "finite"]
    return values if len(values) > 1 else results["loss"]


@contextlib.contextmanager
def _abandoned(callbacks):
    """Ends a training that fails for callbacks with `on_train_abandoned`.

    Keras calls no `on_train_end` then.
    """
    try:
        yield
    except BaseException:
        for callback in callbacks:
            if hasattr(callback, "on_train_abandoned"):
                callback.on_train_abandoned()
        raise


def _print_line(text):
    sys.stdout.write(f"{text}\n")


def listed(callbacks):
    """The callbacks of a Keras user: one, a list, a `CallbackList` or None."""
    found = getattr(callbacks, "callbacks", callbacks) or []
    return list(found) if isinstance(found, list | tuple) else [found]


def evaluate_step(model, images, labels, weights, real=None):
    """Sums over a global batch, of one replica's share; nothing is updated.

    Args:
        model: the compiled `Classifier`.
        images: `[b, h, w, 3]` of this replica.
        labels: int64 `[b]`.
        weights: float32 `[b]`, 0 for padding.
        real: float32 `[b]`, 1 and for padding 0; None: the weights are just that.

    Returns:
        dict of scalars, equal on every replica: `examples`, their number; `weights`,
        their sum; `loss` and the metrics, sums over examples, of weight times value for
        the loss and weighted metrics.
    """
    dtype = keras.config.floatx()
    weights = tf.cast(weights, dtype)
    real = weights if real is None else tf.cast(real, dtype)
    embeddings = tf.cast(model(images, training=False), dtype)
    outcome = model.head.losses(
        embeddings,
        labels,
        weights,
        bool(model.ranked_metrics),
        step=tf.convert_to_tensor(model.optimizer.iterations),
    )
    sums = {
        loop.EXAMPLES: tf.reduce_sum(real),
        loop.WEIGHTS: tf.reduce_sum(weights),
        "loss": tf.reduce_sum(weights * outcome.losses),
    }
    for name, k in model.ranked_metrics.items():
        share = weights if name in model.weighted_metrics else real
        sums[name] = tf.reduce_sum(share * tf.cast(outcome.ranks < k, dtype))
    names = list(sums)
    totals = collectives.all_sum(tf.stack([sums[name] for name in names]))
    return dict(zip(names, tf.unstack(totals), strict=True))


def _distributed(model, data, steps):
    """Yields per-replica batches of the data's first epoch, as of `batching.pad`."""
    parts = model.strategy.num_replicas_in_sync
    dataset = loop.prepared(model, data, data.epoch(0), parts)
    iterator = iter(dataset.take(steps) if steps else dataset)
    for number in itertools.count():
        try:
            batch = next(iterator, None)
        except READ_ERRORS as error:
            where = loop.Position(step=number)
            raise loop.explained(data, where, error, what="data to evaluate") from error
        if batch is None:
            return
        if not number and batch[0].dtype.is_floating:
            check_range(batch[0].numpy(), "images")
        yield batching.split(model.strategy, batch)
