"""The functions of an exported model: pictures to embeddings, and to classes."""

import keras
import numpy as np
import tensorflow as tf

from plsc_tf.backbones.precision import in_float32
from plsc_tf.data import images as image_ops


def embedding_function(network, image_size):
    """Traces the network: a concrete function, [N, h, w, 3] -> [N, embedding_size].

    Args:
        network: Keras model, or another callable.
        image_size: (height, width) of its input.

    Raises:
        ValueError: its output has another form.
    """

    @tf.function(input_signature=[images_spec(image_size)])
    def embed(images):
        if isinstance(network, keras.Model):
            with in_float32(network):
                embeddings = network(images, training=False)
        else:
            embeddings = network(images)
        embeddings = tf.cast(embeddings, tf.float32)
        if embeddings.shape.rank != 2 or embeddings.shape[1] is None:
            raise ValueError(
                "The network must return [N, embedding_size]. Received: shape "
                f"{embeddings.shape} for images of shape {images.shape}."
            )
        return embeddings

    return embed.get_concrete_function()


def images_spec(image_size):
    """The `TensorSpec` of decoded pictures in 0...255."""
    return tf.TensorSpec([None, *image_size, 3], tf.float32, "images")


class ClosedSet:
    """The head of a `Classifier` for inference: its best classes, without a margin.

    The class weights are gathered from all replicas, [num_classes, embedding_size]
    float32; for a head with normalised weights they are normalised here, once. Of
    several centers per class, `[num_classes, sub_centers, embedding_size]`, the one
    nearest to a picture counts, as in training.

    Args:
        head: a `plsc_tf.heads` head.
        top: how many classes to tell of each picture.

    Raises:
        ValueError: there are not as many classes.
    """

    def __init__(self, head, top):
        if not 1 <= top <= head.num_classes:
            raise ValueError(
                f"classes must be between 1 and the head's {head.num_classes}. "
                f"Received: classes={top}."
            )
        self.top = top
        weights = head.weights_as_numpy()
        self._normalized, self._scale = head.margins.normalized, 1.0
        bias = np.zeros(0, np.float32)
        if self._normalized:
            norms = np.linalg.norm(weights, axis=-1, keepdims=True)
            weights /= np.maximum(norms, 1e-12)
            self._scale = float(head.scale)
        else:
            bias = np.asarray(head.arrays()["bias"].read(0, head.num_classes))
        self.variables = [
            tf.Variable(weights, trainable=False, name="class_weights"),
            tf.Variable(bias, trainable=False, name="class_biases", dtype=tf.float32),
        ]

    def __call__(self, embeddings):
        """Returns {"classes": int64 [N, top], "scores": float32 [N, top]}.

        Args:
            embeddings: float32 [N, embedding_size] as the network returns them.
        """
        weights, bias = self.variables
        if self._normalized:
            embeddings = tf.math.l2_normalize(embeddings, axis=1)
        rows = tf.reshape(weights, [-1, weights.shape[-1]])
        logits = tf.matmul(embeddings, rows, transpose_b=True) * self._scale
        if weights.shape.rank == 3:  # noqa: PLR2004 - several centers per class
            logits = tf.reduce_max(tf.reshape(logits, [-1, *weights.shape[:2]]), axis=2)
        if not self._normalized:
            logits += bias
        best, classes = tf.math.top_k(logits, self.top)
        # Probabilities of all classes, of which only the best are needed.
        total = tf.reduce_logsumexp(logits, axis=1, keepdims=True)
        return {"classes": tf.cast(classes, tf.int64), "scores": tf.exp(best - total)}


class Signatures:
    """What is saved: the module that holds the variables, and its signatures.

    Args:
        embed: of `embedding_function`.
        image_size: (height, width).
        normalize: whether embeddings are divided by their L2 norm.
        prepare: one encoded picture, a string scalar -> uint8 [height, width, 3]; None
            decodes and resizes it.
        closed_set: a `ClosedSet`, or None.
    """

    def __init__(self, embed, image_size, normalize, prepare=None, closed_set=None):
        self._raw, self.image_size, self._normalize = embed, image_size, normalize
        self._prepare = prepare or self._resized
        self._closed_set = closed_set
        self.module = tf.Module()
        # The network itself would bring its head and optimizer into the files.
        self.module.read_variables = list(embed.variables)
        if closed_set:
            self.module.class_variables = closed_set.variables
        if normalize:
            # What formats without precise division by the norm are made from.
            self.module.raw = self._function(embed, self._images)

    def functions(self):
        """{signature: function}, for `tf.saved_model.save`."""
        encoded = tf.TensorSpec([None], tf.string, "bytes")

        def from_bytes(bytes):
            return {"embedding": self.embed(self._decoded(bytes))}

        def from_images(images):
            return {"embedding": self.embed(images)}

        def classes_of(bytes):
            return self.classify(self._decoded(bytes))

        found = {
            "serving_default": self._function(from_bytes, encoded),
            "images": self._function(from_images, self._images),
        }
        if self._closed_set:
            found["classify"] = self._function(classes_of, encoded)
        return found

    def embed(self, images):
        """Embeddings of float32 [N, height, width, 3], as the export returns them."""
        embeddings = self._raw(images)
        if self._normalize:
            return tf.math.l2_normalize(embeddings, axis=1)
        return embeddings

    def classify(self, images):
        """What the signature `classify` says about float32 [N, height, width, 3]."""
        return self._closed_set(self._raw(images))

    def prepare(self, encoded):
        """Pictures as the network sees them: list of bytes -> uint8 [N, h, w, 3]."""
        one = tf.function(self._prepare, autograph=False)
        return np.stack([one(tf.constant(data)).numpy() for data in encoded])

    def _resized(self, encoded):
        return image_ops.resize(image_ops.decode(encoded), self.image_size)

    def _decoded(self, encoded):
        def picture(one):
            return tf.ensure_shape(self._prepare(one), [*self.image_size, 3])

        spec = tf.TensorSpec([*self.image_size, 3], tf.uint8)
        images = tf.map_fn(picture, encoded, fn_output_signature=spec)
        return tf.cast(images, tf.float32)

    @staticmethod
    def _function(function, spec):
        return tf.function(
            lambda tensor: function(tensor), input_signature=[spec], autograph=False
        )

    @property
    def _images(self):
        return images_spec(self.image_size)
