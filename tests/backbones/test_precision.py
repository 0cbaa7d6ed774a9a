"""Which layers compute in half precision, and that embeddings stay float32."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from plsc_tf import backbones
from plsc_tf.backbones.precision import Precision, apply

SMALL = {"depths": (1,), "width": 8, "image_shape": (16, 16, 3), "embedding_size": 8}


def small(dtype="float32", **changes):
    keras.utils.set_random_seed(0)
    return backbones.build("iresnet", dtype=dtype, **{**SMALL, **changes})


def images(number=4):
    shape = (number, 16, 16, 3)
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def computes(network):
    """`{layer name: dtype}` of all layers with weights."""
    layers = (layer for layer in network.layers if layer.weights)
    return {layer.name: layer.compute_dtype for layer in layers}


@pytest.mark.parametrize(("dtype", "train"), [("float16", True), ("bfloat16", False)])
def test_half_precision_gives_nearly_the_same_float32_embeddings(dtype, train):
    expected = small()(images(), training=train).numpy()
    found = small(dtype)(images(), training=train)
    assert found.dtype == tf.float32
    # float16 has 11 bits, bfloat16 8.
    bits = 11 if dtype == "float16" else 8
    assert 0 < np.abs(found - expected).max() < 16 * 2.0**-bits * np.abs(expected).max()


@pytest.mark.parametrize(
    ("dtype", "name"), [("float16", "iresnet10"), ("bfloat16", "mobilefacenet")]
)
def test_only_the_embedding_layers_are_float32(dtype, name):
    shape = (32, 32, 3)
    network = backbones.build(name, dtype=dtype, image_shape=shape, embedding_size=8)
    found = computes(network)
    ending = {"embedding_dense", "embedding"}
    assert {layer for layer, used in found.items() if used == "float32"} == ending
    assert set(found.values()) == {"float32", dtype}
    assert {weight.dtype for weight in network.weights} == {"float32"}


def test_batch_normalisations_can_stay_in_float32():
    precision = Precision("float16", keep_batchnorm_fp32=True, white=("features_bn",))
    found = computes(apply(small(), precision))
    assert found.pop("features_bn") == "float16", "the layer's name counts more"
    assert {used for name, used in found.items() if "bn" in name} == {"float32"}
    assert found["stem_conv"] == found["stem_prelu"] == "float16"


def test_lists_go_by_class_and_a_layers_own_name_counts_more():
    white, black = ("embedding_dense", "stem_prelu"), ("PReLU", "stem_conv")
    found = computes(apply(small(), Precision("bfloat16", white=white, black=black)))
    assert found["embedding_dense"] == found["stem_prelu"] == "bfloat16"
    assert found["stem_conv"] == "float32"
    others = [name for name in found if "prelu" in name and name != "stem_prelu"]
    assert others and {found[name] for name in others} == {"float32"}
    assert found["stage1_block1_conv1"] == "bfloat16"


def test_wrong_names_and_dtypes_are_errors_with_near_ones():
    network = small()
    with pytest.raises(ValueError, match=r"Received: 'conv2d'.*mean 'Conv2D'"):
        apply(network, Precision("float16", black=("conv2d",)))
    with pytest.raises(ValueError, match=r"PReLU.*'stemconv'.*'stem_conv'"):
        apply(network, Precision("float16", white=("stemconv",)))
    with pytest.raises(ValueError, match=r"both white and black: \['PReLU'\]"):
        Precision("float16", white=("PReLU",), black=("PReLU", "Dense"))
    with pytest.raises(ValueError, match="keep_batchnorm_fp32 contradicts"):
        Precision("float16", True, white=("BatchNormalization",))
    with pytest.raises(ValueError, match="Received: dtype='half'"):
        small("half")


def test_float32_changes_nothing():
    network = small()
    assert apply(network, Precision(black=("whatever",))) is network
    assert set(computes(network).values()) == {"float32"}


def test_an_ending_in_half_precision_gets_a_cast():
    network = small()
    paths = [weight.path for weight in network.weights]
    ending = ("embedding", "embedding_dense")
    network = apply(network, Precision("bfloat16", white=ending))
    assert network(images()).dtype == tf.float32
    assert network.name == "iresnet" and network.output_shape == (None, 8)
    assert [weight.path for weight in network.weights] == paths


class OwnNetwork(keras.Model):
    """A network whose order only its code knows."""

    def __init__(self):
        super().__init__()
        self.first = keras.layers.Conv2D(4, 3, strides=2)
        self.last = keras.layers.Dense(8)

    def call(self, inputs):
        return self.last(keras.ops.mean(self.first(inputs), axis=(1, 2)))


def test_a_network_of_the_users_own_code(dtype="float16"):
    keras.utils.set_random_seed(0)
    network = backbones.from_user(OwnNetwork(), image_shape=(16, 16, 3))
    expected = network(images()).numpy()
    network = apply(network, Precision(dtype))
    assert network(images()).dtype == tf.float32
    inner = network.layers[1]
    assert inner.first.compute_dtype == inner.last.compute_dtype == dtype
    difference = np.abs(network(images()) - expected).max()
    assert 0 < difference < 0.01 * np.abs(expected).max()


def sequence(*layers):
    return keras.Sequential([keras.Input((16, 16, 3)), *layers])


def test_where_a_users_network_ends():
    layers = keras.layers
    half = [layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(16)]
    whole = [layers.Dense(8), layers.LayerNormalization(), layers.Dropout(0.1)]
    # No dense layer: only what has no weights behind the last layer that has some.
    pooled = [layers.BatchNormalization(), layers.GlobalAveragePooling2D()]
    for before, ending in ((half, whole), ([layers.Conv2D(8, 3)], pooled)):
        network = sequence(*before, *ending)
        assert apply(network, Precision("float16")) is network
        assert {layer.compute_dtype for layer in before} == {"float16"}
        assert {layer.compute_dtype for layer in ending} == {"float32"}
    network = sequence(layers.Flatten(), layers.EinsumDense("ab,bc->ac", 8))
    found = apply(network, Precision("float16"))
    assert found is not network and found(images()).dtype == tf.float32


def test_nested_networks_and_layers_with_other_dtypes():
    inner = sequence(keras.layers.Conv2D(4, 3, name="conv", dtype="float64"))
    image = keras.Input((16, 16, 3))
    x = keras.layers.Flatten()(inner(image))
    network = keras.Model(image, keras.layers.Dense(8, name="last")(x))
    apply(network, Precision("float16"))
    assert inner.get_layer("conv").compute_dtype == "float64"
    assert inner.compute_dtype == "float32"  # only passes tensors on
    assert network.get_layer("last").compute_dtype == "float32"
    assert network(images()).dtype == tf.float32


def test_a_saved_network_keeps_its_precision(tmp_path):
    network = small("bfloat16")
    network.save(tmp_path / "network.keras")
    again = keras.models.load_model(tmp_path / "network.keras")
    assert computes(again) == computes(network)
    np.testing.assert_array_equal(again(images()), network(images()))
