"""Networks of the user's own: `BaseModel` and `from_user`."""

import textwrap

import keras
import numpy as np
import pytest

from plsc_tf.backbones import BaseModel, from_user, precision
from plsc_tf.backbones.precision import Precision
from plsc_tf.heads.heads import DenseHead
from plsc_tf.training.classifier import Classifier

SHAPE = (16, 12, 3)


class Tiny(BaseModel):
    """In the form of PLSC's manual."""

    def __init__(self, emb_dim=8):
        super().__init__()
        self.emb_dim = emb_dim

    def build_network(self, input, label, is_train=True):
        x = keras.layers.Conv2D(4, 3, strides=2)(input)
        x = keras.layers.BatchNormalization()(x, training=is_train)
        x = keras.layers.Flatten()(keras.ops.relu(x))
        return keras.layers.Dense(self.emb_dim)(x)


def keras_network(size=8, shape=SHAPE):
    image = keras.Input(shape)
    return keras.Model(image, keras.layers.Dense(size)(keras.layers.Flatten()(image)))


def test_a_subclass_becomes_a_keras_model_of_its_name():
    network = from_user(Tiny, embedding_size=8, image_shape=SHAPE)
    assert network.name == "Tiny"
    assert network.input_shape == (None, *SHAPE)
    assert network(np.zeros((2, *SHAPE), "float32")).shape == (2, 8)


def test_is_train_none_lets_keras_choose_the_mode():
    network = from_user(Tiny(emb_dim=6), image_shape=SHAPE)
    norm = next(x for x in network.layers if "batch" in x.name)
    x = np.random.default_rng(0).normal(size=(4, *SHAPE)).astype("float32")
    network(x, training=False)
    assert not np.any(norm.moving_mean)
    network(x, training=True)
    assert np.any(norm.moving_mean)


class Subclassed(keras.Model):
    def __init__(self, embedding_size=5):
        super().__init__()
        self.dense = keras.layers.Dense(embedding_size)

    def call(self, x):
        return self.dense(keras.ops.mean(x, axis=(1, 2)))


def test_from_user_wraps_a_subclassed_model_and_shares_its_weights():
    model = Subclassed(5)
    network = from_user(model, image_shape=SHAPE)
    assert network.output_shape == (None, 5)
    assert network.trainable_weights[0] is model.trainable_weights[0]
    made = from_user(Subclassed, embedding_size=7, image_shape=SHAPE)
    assert made.output_shape == (None, 7)


def test_from_user_takes_a_function():
    def make(image_shape, embedding_size=4):
        return keras_network(embedding_size, image_shape)

    network = from_user(make, embedding_size=9, image_shape=(8, 8, 3))
    assert (network.input_shape, network.output_shape) == ((None, 8, 8, 3), (None, 9))
    assert from_user(network, image_shape=(8, 8, 3)) is network


def test_from_user_takes_images_of_free_size():
    image = keras.Input((None, None, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(image)
    free = keras.Model(image, keras.layers.Dense(4)(pooled))
    network = from_user(free, image_shape=SHAPE)
    assert (network.input_shape, network.output_shape) == ((None, *SHAPE), (None, 4))
    assert network.trainable_weights[0] is free.trainable_weights[0]
    assert Classifier(network, DenseHead(3)).image_size == SHAPE[:2]
    assert precision.apply(network, Precision("bfloat16")).output.dtype == "float32"


def test_from_user_takes_models_that_were_called_already():
    layers = [keras.layers.Flatten(), keras.layers.Dense(5)]
    for model in (Subclassed(), keras.Sequential(layers)):
        expected = model(np.ones((2, *SHAPE), "float32"))
        network = from_user(model, image_shape=SHAPE)
        assert network.input_shape == (None, *SHAPE)
        assert network.output_shape == (None, 5)
        found = network(np.ones((3, *SHAPE), "float32"))
        np.testing.assert_allclose(found[:2], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("scales", "warned"), [([1 / 255], 1), ([128.0], 0), ([128.0, 1 / 255], 0), ([], 0)]
)
def test_a_network_that_scales_pixels_itself_is_warned_of(scales, warned, caplog):
    image = keras.Input(SHAPE)
    inner = keras.Sequential(
        [keras.Input(SHAPE)]
        + [keras.layers.Rescaling(k, name=f"own_{k:.0f}") for k in scales]
        + [keras.layers.Flatten(), keras.layers.Dense(4)]
    )
    network = keras.Model(image, inner(image), name=f"of_{len(scales)}_{warned}")
    from_user(network, image_shape=SHAPE)
    assert caplog.text.count("scales its images in layer 'own_0' (Rescaling)") == warned


def test_from_user_lifts_half_precision_to_float32():
    image = keras.Input(SHAPE)
    x = keras.layers.Flatten()(image)
    network = keras.Model(image, keras.layers.Dense(4, dtype="mixed_float16")(x))
    assert from_user(network, image_shape=SHAPE).output.dtype == "float32"


def two_inputs():
    first, second = keras.Input(SHAPE), keras.Input(SHAPE)
    return keras.Model([first, second], keras.layers.Flatten()(first + second))


def vectors():
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(8)])


def in_plscs_form(build_network):
    return type("Own", (BaseModel,), {"build_network": build_network})


# Functions, because nothing may touch TensorFlow's devices while tests are collected.
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BaseModel(), "BaseModel must implement build_network"),
        (lambda: in_plscs_form(lambda self, input, is_train: input), "takes 3 pos"),
        (lambda: in_plscs_form(lambda *_: _[1]), r"Own.*\(None, 16, 12, 3\).*pooling"),
        (lambda: in_plscs_form(lambda *_: None), "one symbolic tensor.*NoneType"),
        (lambda: lambda depth: None, "missing 1 required .* 'depth'"),
        (lambda: keras_network(7), r"of size 8. Received: size=7.*embedding_size=7"),
        (lambda: keras_network(8, (32, 32, 3)), r"16, 12, 3\).*\(None, 32, 32, 3"),
        (two_inputs, "one input of .* Received: inputs=2"),
        (vectors, r"shape=\(None, 8\)"),
        (lambda: keras.layers.Conv2D(8, 3), r"one symbolic.*\(None, 14, 10, 8\)"),
        (lambda: 3, "must be a keras.Model.*3 of type int"),
        (lambda: "Mean", "or the dotted path of one. Received: 'Mean'"),
        (lambda: "os.path", "Received: <module .* of type module"),
        (lambda: keras.Model, r"does not have a `call\(\)` method"),
    ],
)
def test_what_is_no_network_is_refused(make, message):
    errors = TypeError, ValueError, NotImplementedError
    with pytest.raises(errors, match=message):
        from_user(make(), embedding_size=8, image_shape=SHAPE)


@pytest.fixture
def my_networks(tmp_path, monkeypatch):
    """A module of the user's on the import path."""
    code = """
        import keras
        from plsc_tf.backbones import BaseModel

        class Mean(BaseModel):
            def build_network(self, input, label, is_train=True):
                return keras.layers.Dense(4)(keras.ops.mean(input, axis=(1, 2)))
        """
    (tmp_path / "my_networks.py").write_text(textwrap.dedent(code))
    (tmp_path / "my_broken.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("path", ["my_networks.Mean", "my_networks:Mean"])
def test_from_user_takes_a_dotted_path(my_networks, path):
    assert from_user(path, image_shape=SHAPE).output_shape == (None, 4)


def test_dotted_paths_that_lead_nowhere_say_where_they_stopped(my_networks):
    with pytest.raises(ImportError, match="the module 'no_networks'.*PYTHONPATH"):
        from_user("no_networks.Mean")
    with pytest.raises(ImportError, match="Did you mean 'my_networks.Mean"):
        from_user("my_networks.Meen")
    with pytest.raises(ImportError, match="__main__.*another script.*in Python"):
        from_user("__main__.Absent")
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        from_user("my_broken.Net")
