"""Vision transformers for faces."""

import keras
from keras import layers, ops

from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.blocks import Style

# Width and depth of arcface_torch's networks; all have 8 heads and patches of 9 pixels.
SIZES = {"vit_t": (256, 12), "vit_s": (512, 12), "vit_b": (512, 24), "vit_l": (768, 24)}
HEADS = 8
PATCH = 9


def truncated_normal():
    """N(0, 0.02²), cut off at two deviations, of all weights of a transformer."""
    return keras.initializers.TruncatedNormal(stddev=0.02)


@keras.saving.register_keras_serializable(package="plsc_tf")
class PositionEmbedding(layers.Layer):
    """Adds a learned vector to each place of a sequence [N, places, width]."""

    def build(self, input_shape):
        """Makes the vectors."""
        self.position = self.add_weight(
            shape=(1, *input_shape[1:]), initializer=truncated_normal(), name="position"
        )

    def call(self, inputs):
        """Adds them."""
        return inputs + ops.cast(self.position, inputs.dtype)

    def compute_output_shape(self, input_shape):
        """The input's shape."""
        return input_shape


@keras.saving.register_keras_serializable(package="plsc_tf")
class Attention(layers.Layer):
    """Scaled dot products of queries and keys choose among the values.

    Takes [N, places, 3 · width], queries, keys and values side by side, and gives
    [N, places, width]. The products are float32 in any case, as in arcface_torch.

    Args:
        heads: parts that the width is cut into.
    """

    def __init__(self, heads, **options):
        super().__init__(**options)
        self.heads = heads

    def call(self, inputs):
        """Attends."""
        _, places, width = inputs.shape
        size = width // 3 // self.heads
        parts = ops.reshape(
            ops.cast(inputs, "float32"), (-1, places, 3, self.heads, size)
        )
        queries, keys, values = ops.unstack(
            ops.transpose(parts, (2, 0, 3, 1, 4)), 3, axis=0
        )
        scores = ops.matmul(queries, ops.transpose(keys, (0, 1, 3, 2))) * size**-0.5
        mixed = ops.matmul(ops.softmax(scores, axis=-1), values)
        mixed = ops.transpose(mixed, (0, 2, 1, 3))
        mixed = ops.reshape(mixed, (-1, places, width // 3))
        return ops.cast(mixed, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        """A third of the input's last axis."""
        return (*input_shape[:-1], input_shape[-1] // 3)

    def get_config(self):
        """The arguments, for saving."""
        return {**super().get_config(), "heads": self.heads}


def vit(  # noqa: PLR0913 - a row of `SIZES` and the options of the family
    width: int,
    depth: int,
    image,
    arguments: NetworkArguments,
    *,
    drop_path: float = 0.1,
    patch: int = PATCH,
):
    """The face transformer of arcface_torch (`backbones/vit.py`), without masking.

    Patches of 9×9 pixels, position embeddings, blocks of attention and a ReLU6
    perceptron of four times the width, each behind a layer normalization; then a dense
    layer over all places, and the embedding. Source of the blocks: Dosovitskiy et al.
    2020, arXiv:2010.11929; of leaving out blocks: arXiv:1603.09382.

    arcface_torch also leaves out a tenth of the patches while it trains vit_t, vit_s
    and vit_b (mask_ratio), but none in its WebFace42M recipes of vit_t and vit_s.

    Args:
        width: numbers of each place.
        depth: blocks.
        image: symbolic images.
        arguments: of the network; dropout is 0, and is on the places' features.
        drop_path: share of examples for which the last block is left out, less in those
            before; 0.05 in the WebFace42M recipes.
        patch: side of a patch in pixels.

    Returns:
        [N, embedding_size] tensor.
    """
    arguments.require_pixels(patch)
    # Only its batch normalization is used.
    style = Style(2e-5, None, None, synchronized=arguments.synchronized_batch_norm)
    x = layers.Conv2D(
        width, patch, strides=patch, kernel_initializer=truncated_normal(), name="patch"
    )(image)
    x = layers.Reshape((-1, width), name="places")(x)
    x = PositionEmbedding(name="position")(x)
    for block in range(depth):
        share = drop_path * block / (depth - 1)
        x = _block(x, width, share, f"block{block + 1}")
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.Flatten(name="flatten")(x)
    if arguments.dropout_or(0.0):
        x = layers.Dropout(arguments.dropout, name="dropout")(x)
    x = _dense(x, width, "features_dense", bias=False)
    x = style.norm(x, name="features_bn")
    precision = keras.config.dtype_policy().variable_dtype
    size = arguments.embedding_size
    x = _dense(x, size, "embedding_dense", bias=False, dtype=precision)
    return style.norm(x, name="embedding", dtype=precision)


def _block(x, width, share, name):
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_norm1")(x)
    y = _dense(y, 3 * width, f"{name}_qkv", bias=False)
    y = Attention(HEADS, name=f"{name}_attention")(y)
    y = _dense(y, width, f"{name}_projection")
    x = _add(x, y, share, f"{name}_add1")
    y = layers.LayerNormalization(epsilon=1e-5, name=f"{name}_norm2")(x)
    y = _dense(y, 4 * width, f"{name}_dense1")
    y = layers.ReLU(max_value=6, name=f"{name}_relu6")(y)
    y = _dense(y, width, f"{name}_dense2")
    return _add(x, y, share, f"{name}_add2")


def _add(x, y, share, name):
    if share:
        y = layers.Dropout(share, noise_shape=(None, 1, 1), name=f"{name}_drop")(y)
    return layers.Add(name=name)([x, y])


def _dense(x, size, name, *, bias=True, dtype=None):
    return layers.Dense(
        size,
        use_bias=bias,
        kernel_initializer=truncated_normal(),
        dtype=dtype,
        name=name,
    )(x)
