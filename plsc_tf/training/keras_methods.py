"""Keras's `fit`, `evaluate` and `predict`, with its weights and validation."""

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.parallel import collectives
from plsc_tf.training import batching, keras_arguments, keras_saving, loop


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
            steps_per_epoch: cuts epochs to so many steps.
            validation_steps: batches of a validation; None: all.
            validation_freq: epochs between two validations.
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
        data = training_data(
            x,
            y,
            batch_size=batch_size,
            sample_weight=sample_weight,
            class_weight=class_weight,
            shuffle=shuffle,
        )
        if validation_data is not None:
            found = validation_batches(validation_data, batch_size)
            validation = Validation(found, validation_freq, validation_steps)
            callbacks = [validation, *listed(callbacks)]
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
            x: what `plsc_tf.load` returns, a `tf.data.Dataset` of (images, labels[,
                weights]) batches, or an array of images `[N, h, w, 3]`.
            y: labels when `x` is an array.
            batch_size: images per global batch when `x` is an array.
            verbose: accepted; nothing is shown.
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
        data = training_data(
            x, y, batch_size=batch_size, sample_weight=sample_weight, shuffle=False
        )
        callbacks = keras.callbacks.CallbackList(callbacks, model=self)
        callbacks.on_test_begin()
        sums = {}
        for number, batch in enumerate(_distributed(self, data, steps)):
            callbacks.on_test_batch_begin(number)
            for name, value in self._evaluate_function(batch).items():
                local = self.strategy.experimental_local_results(value)[0]
                sums[name] = sums.get(name, 0.0) + float(local)
            callbacks.on_test_batch_end(number, {})
        total = sums.pop("weights", 0.0)
        if not total:
            raise ValueError("There is nothing to evaluate: no example, or no weight.")
        results = {name: value / total for name, value in sums.items()}
        callbacks.on_test_end(results)
        if return_dict:
            return results
        return list(results.values()) if len(results) > 1 else results["loss"]

    def predict(self, x, batch_size=None, verbose="auto", steps=None, callbacks=None):
        """Embeddings of images; `embed` under Keras's name.

        Scores of classes are no output of this model: a head of millions of classes
        is never gathered. The export's signature `classify` gives the best classes.

        Args:
            x: array of images `[N, h, w, 3]` in 0 … 255, or a `tf.data.Dataset` of
                batches of images, or of tuples that begin with one.
            batch_size: images at a time over all replicas.
            verbose: accepted; nothing is shown.
            steps: cuts a data set to so many batches.
            callbacks: refused.

        Returns:
            `[N, embedding_size]` float32, not normalised.
        """
        del verbose
        if callbacks:
            raise ValueError("predict calls no callbacks: leave callbacks out.")
        size = batch_size or 120
        if hasattr(x, "epoch") and hasattr(x, "batch_size"):
            x = x.epoch(0)
        if not isinstance(x, tf.data.Dataset):
            return self.embed(np.asarray(x), size)
        parts = []
        for element in x.take(steps) if steps else x:
            images = element[0] if isinstance(element, tuple) else element
            parts.append(self.embed(images, batch_size or len(images)))
        if not parts:
            raise ValueError("There is nothing to embed: the data set is empty.")
        return np.concatenate(parts)

    def test_on_batch(self, x, y=None, sample_weight=None, return_dict=False):
        """`evaluate` on one global batch of arrays."""
        return self.evaluate(
            x,
            y,
            batch_size=max(1, len(x)),
            sample_weight=sample_weight,
            return_dict=return_dict,
        )

    def predict_on_batch(self, x):
        """`predict` on one array of images."""
        return self.predict(x, batch_size=max(1, len(x)))

    def _distributed_evaluate(self, batch):
        return self.strategy.run(evaluate_step, args=(self, *batch))


class Validation(keras.callbacks.Callback):
    """Adds `val_loss` and `val_` metrics to an epoch's logs, before other callbacks.

    Args:
        data: what `Classifier.evaluate` takes as `x`.
        freq: epochs between two validations.
        steps: batches of one; None: all.
    """

    def __init__(self, data, freq=1, steps=None):
        super().__init__()
        self._data, self._freq, self._steps = data, freq, steps

    def on_epoch_end(self, epoch, logs=None):
        """Evaluates after every so many epochs."""
        if (epoch + 1) % self._freq or logs is None:
            return
        found = self.model.evaluate(self._data, steps=self._steps, return_dict=True)
        logs.update({f"val_{name}": value for name, value in found.items()})


class WeighedBatches:
    """Batches whose examples weigh what their class weighs.

    Args:
        data: has `epoch`, as `training.loop` wants it.
        class_weight: `{label: weight}`; other classes weigh 1.
    """

    def __init__(self, data, class_weight):
        self._data = data
        labels = np.fromiter(class_weight, np.int64)
        weights = np.fromiter(class_weight.values(), np.float32)
        if not len(labels) or weights.min() < 0:
            raise ValueError(
                "class_weight must be {label: weight}, no weight negative. Received: "
                f"class_weight={class_weight}"
            )
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(labels, weights), default_value=1.0
        )

    def __getattr__(self, name):
        value = getattr(self._data, name)
        if name != "part_of_epoch":
            return value
        return lambda *where, **part: self._weighed(value(*where, **part))

    def epoch(self, epoch, start_step=0):
        """The weighed batches of an epoch from a step on."""
        return self._weighed(self._data.epoch(epoch, start_step))

    def _weighed(self, dataset):
        def weigh(images, labels, weights=None):
            own = self._table.lookup(tf.cast(labels, tf.int64))
            own = tf.reshape(own, [-1])
            return images, labels, own if weights is None else own * weights

        return dataset.map(tf.autograph.experimental.do_not_convert(weigh))


def training_data(
    x, y=None, *, batch_size=None, sample_weight=None, class_weight=None, shuffle=True
):
    """What Keras users hand to `fit`, as `training.loop` wants it.

    Args:
        x: what `plsc_tf.load` returns, a `tf.data.Dataset`, or an array.
        y: labels when `x` is an array.
        batch_size: images per global batch when `x` is an array.
        sample_weight: `[N]` when `x` is an array.
        class_weight: `{label: weight}`.
        shuffle: whether an array is shuffled.

    Raises:
        ValueError: they do not go together.
    """
    given = [
        name
        for name, value in (("y", y), ("sample_weight", sample_weight))
        if value is not None
    ]
    if given and (isinstance(x, tf.data.Dataset) or hasattr(x, "epoch")):
        raise ValueError(
            f"{' and '.join(given)} must be left out when x is a data set: it yields "
            "(images, labels) or (images, labels, weights)."
        )
    data = loop.as_batches(x, y, batch_size, sample_weight, shuffle)
    return WeighedBatches(data, class_weight) if class_weight else data


def validation_batches(given, batch_size):
    """`validation_data` of Keras's `fit` as `Classifier.evaluate` takes it.

    Args:
        given: (images, labels[, weights]), or what `evaluate` takes as `x`.
        batch_size: images per global batch of arrays.
    """
    if isinstance(given, tuple | list):
        if len(given) not in (2, 3):
            raise ValueError(
                "validation_data must be (images, labels), (images, labels, weights) "
                f"or a data set. Received: a tuple of {len(given)}"
            )
        images, labels, *weights = given
        return training_data(
            images,
            labels,
            batch_size=batch_size,
            sample_weight=weights[0] if weights else None,
            shuffle=False,
        )
    return training_data(given, batch_size=batch_size)


def listed(callbacks):
    """The callbacks of a Keras user: one, a list, a `CallbackList` or None."""
    found = getattr(callbacks, "callbacks", callbacks) or []
    return list(found) if isinstance(found, list | tuple) else [found]


def evaluate_step(model, images, labels, weights):
    """Sums over a global batch, of one replica's share; nothing is updated.

    Args:
        model: the compiled `Classifier`.
        images: `[b, h, w, 3]` of this replica.
        labels: int64 `[b]`.
        weights: float32 `[b]`, 0 for padding.

    Returns:
        dict of scalars, equal on every replica: `weights`, their sum; `loss` and the
        metrics, sums of weight times value.
    """
    dtype = keras.config.floatx()
    weights = tf.cast(weights, dtype)
    embeddings = tf.cast(model(images, training=False), dtype)
    outcome = model.head.losses(
        embeddings,
        labels,
        weights,
        bool(model.ranked_metrics),
        step=tf.convert_to_tensor(model.optimizer.iterations),
    )
    sums = {
        "weights": tf.reduce_sum(weights),
        "loss": tf.reduce_sum(weights * outcome.losses),
    }
    for name, k in model.ranked_metrics.items():
        sums[name] = tf.reduce_sum(weights * tf.cast(outcome.ranks < k, dtype))
    names = list(sums)
    totals = collectives.all_sum(tf.stack([sums[name] for name in names]))
    return dict(zip(names, tf.unstack(totals), strict=True))


def _distributed(model, data, steps):
    """Yields per-replica (images, labels, weights) of the data's first epoch."""
    whole = data.epoch(0)
    batching.check_size(whole, model.image_size)
    dataset = batching.prepare(
        whole,
        data.batch_size,
        model.strategy.num_replicas_in_sync,
        model.head.num_classes,
    )
    for batch in dataset.take(steps) if steps else dataset:
        yield batching.split(model.strategy, batch)
