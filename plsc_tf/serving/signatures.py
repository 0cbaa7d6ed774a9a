"""The functions of an exported model, which map images to embeddings or classes."""

from collections.abc import Callable, Sequence

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.backbones.precision import in_float32
from plsc_tf.data import images as image_ops
from plsc_tf.evaluation import closed_set, quality
from plsc_tf.evaluation.calibration import Calibration
from plsc_tf.evaluation.verification import lengths
from plsc_tf.requirements import require

# Images of a validation set that are embedded at a time.
_BATCH = 32


class ClosedSet:
    """A `Classifier`'s head for inference: returns the best classes, without a margin.

    The constructor gathers the class weights from all replicas, float32
    `[num_classes, embedding_size]`, and normalizes them once if the head's loss does.
    With several centers per class, `[num_classes, sub_centers, embedding_size]`, the
    center nearest to the image determines the class's score, as in training.

    Args:
        head: a `plsc_tf.heads` head.
        top: number of classes to return for each image.

    Raises:
        ValueError: `top` is less than 1 or exceeds the number of classes.
        FloatingPointError: a class weight contains NaN or infinity.
    """

    def __init__(self, head, top: int):
        rule = f"classes must be between 1 and num_classes={head.num_classes}"
        require(1 <= top <= head.num_classes, rule, classes=top)
        self.top, self._normalized = top, head.loss.normalized
        self._scale = float(head.scale) if self._normalized else 1.0
        _, weights, biases = zip(*closed_set.class_blocks(head), strict=True)
        weights, biases = np.concatenate(weights), np.concatenate(biases)
        self.variables = [
            tf.Variable(weights, trainable=False, name="class_weights"),
            tf.Variable(biases, trainable=False, name="class_biases", dtype=tf.float32),
        ]

    def __call__(self, embeddings: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns {"classes": int64 `[N, top]`, "scores": float32 `[N, top]`}.

        Args:
            embeddings: float32 `[N, embedding_size]`, not normalized.
        """
        weights, biases = self.variables
        if self._normalized:
            embeddings = tf.math.l2_normalize(embeddings, axis=1)
        rows = tf.reshape(weights, [-1, weights.shape[-1]])
        logits = tf.matmul(embeddings, rows, transpose_b=True) * self._scale
        if weights.shape.rank == 3:  # noqa: PLR2004 - several centers per class
            logits = tf.reduce_max(tf.reshape(logits, [-1, *weights.shape[:2]]), axis=2)
        logits += biases
        best, classes = tf.math.top_k(logits, self.top)
        # The softmax is over all classes, but only the best ones are returned.
        total = tf.reduce_logsumexp(logits, axis=1, keepdims=True)
        return {"classes": tf.cast(classes, tf.int64), "scores": tf.exp(best - total)}


class Signatures:
    """Builds the module to save, which holds the variables, and its signatures.

    Args:
        network: Keras model or other callable that maps `[N, h, w, 3]` to
            `[N, embedding_size]`.
        image_size: (height, width).
        normalize: whether embeddings are divided by their L2 norm.
        prepare: maps one encoded image, a string scalar, to uint8 `[height, width, 3]`;
            None decodes and resizes it.
        closed_set: a `ClosedSet`, or None to omit `classify`.
        validation: encoded images, `quality.MIN_IMAGES` or more, whose embeddings
            calibrate `quality`; with fewer, it is omitted.
        threshold: that of the model card; without "cosine" or "calibration", `verify`
            and `verify_embeddings` are omitted.

    Attributes:
        module: the `tf.Module` to save.
        functions: {signature: function}, for `tf.saved_model.save`.
        embedding_size: length of an embedding.
        percentiles: those of the lengths of embeddings, see `quality.calibrate`; [] if
            `quality` is omitted.

    Raises:
        ValueError: the network's output is not `[N, embedding_size]`.
    """

    def __init__(
        self,
        network: Callable,
        image_size: tuple[int, int],
        normalize: bool = False,
        prepare: Callable | None = None,
        closed_set: ClosedSet | None = None,
        validation: Sequence[bytes] = (),
        threshold: dict | None = None,
    ):
        self._network, self.image_size, self._normalize = network, image_size, normalize
        self._prepare, self._closed_set = prepare or self._resize, closed_set
        encoded = tf.TensorSpec([None], tf.string, "bytes")
        images = tf.TensorSpec([None, *image_size, 3], tf.float32, "images")
        # Keras models don't need AutoGraph, but a user's callable might.
        convert = not isinstance(network, keras.Model)
        self._raw = one_input(self._compute, images, convert).get_concrete_function()
        self.embedding_size = self._raw.structured_outputs.shape[-1]
        self.module = tf.Module()
        # Track only the variables: saving the network itself would also write its head
        # and optimizer.
        order = [id(handle) for handle in self._raw.captured_inputs]
        read = sorted(self._raw.variables, key=lambda x: order.index(id(x.handle)))
        self.module.read_variables = read
        if normalize:
            # int8 files cannot divide precisely by the norm, so they are converted from
            # this function.
            self.module.raw = one_input(self._raw, images)

        def embed(images):
            return {"embedding": self.embed(images)}

        def of_bytes(compute):
            return one_input(lambda data: compute(self._decode(data)), encoded)

        self.functions = {"serving_default": of_bytes(embed)}
        self.functions["images"] = one_input(embed, images)
        if closed_set:
            self.module.class_variables = closed_set.variables
            self.functions["classify"] = of_bytes(self.classify)
        self._threshold, size = threshold or {}, self.embedding_size
        if "calibration" in self._threshold and threshold["cosine"] is not None:
            rows = tf.TensorSpec([None, 2, size], tf.float32, "embeddings")
            self.functions["verify_embeddings"] = one_input(self._verify, rows)

            def verify(pairs):
                embeddings = self.embed(self._decode(tf.reshape(pairs, [-1])))
                return self._verify(tf.reshape(embeddings, [-1, 2, size]))

            pairs = tf.TensorSpec([None, 2], tf.string, "bytes")
            self.functions["verify"] = one_input(verify, pairs)
        self.percentiles = self._calibrate(validation)
        if self.percentiles:
            self.functions["quality"] = of_bytes(self._rate)

    def _calibrate(self, validation):
        if len(validation) < quality.MIN_IMAGES:
            return []
        norms = []
        for start in range(0, len(validation), _BATCH):
            images = self.prepare(validation[start : start + _BATCH])
            norms.append(lengths(self._raw(tf.constant(images, tf.float32)).numpy()))
        return quality.calibrate(np.concatenate(norms))

    def _rate(self, images):
        """Returns {"embedding", "quality"}; see `quality.rate`, which is for numpy."""
        raw, percentiles = self._raw(images), self.percentiles
        ranks = np.linspace(0, 1, len(percentiles))
        qualities = _interpolate(tf.norm(raw, axis=1), percentiles, ranks)
        outputs = {"embedding": self._finish(raw), "quality": qualities}
        return {name: tf.cast(one, tf.float32) for name, one in outputs.items()}

    def _verify(self, embeddings):
        """Compares pairs, `[N, 2, embedding_size]`; see `export_saved_model`."""
        known = Calibration.read(self._threshold["calibration"])
        rows = tf.cast(embeddings, tf.float64)
        rows /= tf.norm(rows, axis=2, keepdims=True)
        cosines = tf.reduce_sum(rows[:, 0] * rows[:, 1], axis=1)
        problem = "embeddings must be finite, and none may be all zeros"
        cosines = tf.debugging.check_numerics(cosines, problem)
        llrs = _interpolate(cosines, known.cosines, known.llrs)
        outputs = {
            "score": cosines,
            "llr": llrs,
            "probability": tf.sigmoid(llrs + np.log(known.prior / (1 - known.prior))),
            "decision": cosines > self._threshold["cosine"],
        }
        if curves := known.group_curves:
            own = [_interpolate(cosines, *curve) for curve in curves]
            outputs["group_llrs"] = tf.stack(own, axis=1)
        return outputs

    def embed(self, images: tf.Tensor) -> tf.Tensor:
        """Maps float32 `[N, height, width, 3]` to the embeddings the export returns."""
        return self._finish(self._raw(images))

    def _finish(self, raw):
        return tf.math.l2_normalize(raw, axis=1) if self._normalize else raw

    def classify(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps float32 `[N, height, width, 3]` to the outputs of `classify`."""
        return self._closed_set(self._raw(images))

    def prepare(self, encoded: Sequence[bytes]) -> np.ndarray:
        """Decodes a list of encoded images into the network's input.

        Returns:
            uint8 `[N, height, width, 3]`.
        """
        return np.stack([self._prepare(tf.constant(one)).numpy() for one in encoded])

    def _compute(self, images):
        if isinstance(self._network, keras.Model):
            with in_float32(self._network):
                embeddings = self._network(images, training=False)
        else:
            embeddings = self._network(images)
        embeddings = tf.cast(embeddings, tf.float32)
        fits = embeddings.shape.rank == 2 and embeddings.shape[1] is not None
        rule = f"The network must return [N, embedding_size] for images {images.shape}"
        require(fits, rule, shape=embeddings.shape)
        return embeddings

    def _resize(self, encoded):
        return image_ops.resize(image_ops.decode(encoded), self.image_size)

    def _decode(self, encoded):
        def image(one):
            return tf.ensure_shape(self._prepare(one), [*self.image_size, 3])

        spec = tf.TensorSpec([*self.image_size, 3], tf.uint8)
        return tf.cast(tf.map_fn(image, encoded, fn_output_signature=spec), tf.float32)


def _interpolate(x, points, values):
    """Computes `np.interp(x, points, values)` in a graph, in float64; x is `[N]`."""
    points, values = np.array(points, np.float64), np.array(values, np.float64)
    x = tf.clip_by_value(tf.cast(x, tf.float64), points[0], points[-1])
    place = tf.searchsorted(points, x, "right") - 1
    points, values = (np.append(one, one[-1]) for one in (points, values))
    widths = np.maximum(np.diff(points), np.finfo(np.float64).tiny)
    share = (x - tf.gather(points, place)) / tf.gather(widths, place)
    return tf.gather(values, place) + share * tf.gather(np.diff(values), place)


def one_input(function: Callable, spec: tf.TensorSpec, autograph: bool = False):
    """Returns a `tf.function` of one tensor, whose signature names it after `spec`."""
    options = {"input_signature": [spec], "autograph": autograph}
    return tf.function(lambda tensor: function(tensor), **options)
