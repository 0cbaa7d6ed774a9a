"""Vision transformers for faces."""

from keras import initializers, layers, ops, saving

from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.blocks import Style

# Width and depth of arcface_torch's networks; all have 8 heads and 9×9 patches.
SIZES = {"vit_t": (256, 12), "vit_s": (512, 12), "vit_b": (512, 24), "vit_l": (768, 24)}
HEADS, PATCH = 8, 9


def truncated_normal(fan_in: int = 0, fan_out: int = 0):
    """Returns N(0, 0.02²), truncated at two deviations, for a transformer's weights."""
    return initializers.TruncatedNormal(stddev=0.02)


@saving.register_keras_serializable(package="plsc_tf")
class PositionEmbedding(layers.Layer):
    """Adds a learned vector to each place of a sequence `[N, places, width]`."""

    def build(self, input_shape):
        """Creates the vectors."""
        self.position = self.add_weight(
            shape=(1, *input_shape[1:]), initializer=truncated_normal(), name="position"
        )

    def call(self, inputs):
        """Adds the vectors to the inputs."""
        return inputs + ops.cast(self.position, inputs.dtype)


@saving.register_keras_serializable(package="plsc_tf")
class Attention(layers.Layer):
    """Multi-head scaled dot-product attention.

    Maps concatenated queries, keys and values, `[N, places, 3 · width]`, to
    `[N, places, width]`. The products are always computed in float32, as in
    arcface_torch.

    Args:
        heads: number of attention heads.
    """

    def __init__(self, heads, **kwargs):  # Keras saves them by these names
        super().__init__(**kwargs)
        self.heads = heads

    def call(self, inputs):
        """Applies attention."""
        _, places, width = inputs.shape
        shape = (-1, places, 3, self.heads, width // 3 // self.heads)
        parts = ops.reshape(ops.cast(inputs, "float32"), shape)
        mixed = ops.dot_product_attention(*ops.unstack(parts, 3, axis=2))
        mixed = ops.reshape(mixed, (-1, places, width // 3))
        return ops.cast(mixed, self.compute_dtype)


def vit(  # noqa: PLR0913 - a row of `SIZES` and the options of the family
    width: int,
    depth: int,
    image,
    arguments: NetworkArguments,
    *,
    drop_path: float = 0.1,
    patch: int = PATCH,
):
    """Builds arcface_torch's face transformer (`backbones/vit.py`), without masking.

    The network splits the image into patches of 9×9 pixels and adds position
    embeddings. Each block consists of attention and a ReLU6 perceptron of four times
    the width, each after a layer normalization. A dense layer over all places and the
    embedding layer follow. Sources: Dosovitskiy et al. 2020, arXiv:2010.11929 (blocks);
    arXiv:1603.09382 (stochastic depth).

    arcface_torch also drops a tenth of the patches when it trains vit_t, vit_s and
    vit_b (mask_ratio), but not in its WebFace42M recipes for vit_t and vit_s.

    Args:
        width: features per place.
        depth: number of blocks.
        image: symbolic images.
        arguments: the network's common arguments; dropout is 0 by default and applies
            to the flattened features of all places.
        drop_path: share of examples that skip the last block; it decreases linearly to
            0 at the first block. The WebFace42M recipes use 0.05.
        patch: height and width of a patch in pixels.

    Returns:
        `[N, embedding_size]` tensor.
    """
    arguments.require_pixels(patch)
    style = Style(epsilon=2e-5, dense_initializer=truncated_normal)
    x = layers.Conv2D(
        width, patch, strides=patch, kernel_initializer=truncated_normal(), name="patch"
    )(image)
    x = layers.Reshape((-1, width), name="places")(x)
    x = PositionEmbedding(name="position")(x)
    for block in range(depth):
        x = _block(x, width, drop_path * block / (depth - 1), f"block{block + 1}")
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    x = layers.Flatten(name="flatten")(x)
    if arguments.dropout_or(0.0):
        x = layers.Dropout(arguments.dropout, name="dropout")(x)
    x = _dense(x, width, "features_dense", bias=False)
    x = style.norm(x, name="features_bn")
    return style.embedding_dense(x, arguments.embedding_size, bias=False)


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


def _dense(x, size, name, *, bias=True):
    kernel = truncated_normal()
    return layers.Dense(size, use_bias=bias, kernel_initializer=kernel, name=name)(x)
