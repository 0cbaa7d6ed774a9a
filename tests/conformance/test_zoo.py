"""Every network by name: a step, saved, loaded, exported, in every precision."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf import backbones
from plsc_tf.backbones.precision import Precision
from plsc_tf.backbones.zoo.catalog import ENTRIES
from plsc_tf.flags.learning_rate import LearningRate
from plsc_tf.jobs.builders import recipe
from plsc_tf.options.settings import Settings
from plsc_tf.parallel.strategy import strategy as make_strategy
from plsc_tf.training import state
from tests.marks import slow

CLASSES = 3
# What is saved and exported in every run of the tests; the others with `-m slow`.
QUICK = {"lenet"}
# A step of one of each family besides that, operation by operation.
FAMILIES = ("alexnet_v2", "inception_v1", "mobilenet_v1_025")
# A step of these takes minutes to trace, and seconds operation by operation. That they
# can be traced is seen in float32; in half precision the types are what may not fit.
LARGE = (
    *FAMILIES,
    *("inception_v3", "inception_v4", "inception_resnet", "nasnet", "pnasnet"),
    *("resnet_v1_1", "resnet_v1_2", "resnet_v2_1", "resnet_v2_2", "mobilenet_v2"),
)
FACES = {"resnet10": 16, "iresnet10": 16, "mobilefacenet": 16, "mbf": 16}
FACES["vit_t"] = 18
SIZES = {
    # Below 32 pixels the plain ones are quick as well.
    **{name: max(entry.smallest, 8) for name, entry in ENTRIES.items()},
    **{name: size for name, size in FACES.items() if name in backbones.list()},
}
# Batch normalisation of four numbers, 152 layers deep, multiplies gradients beyond what
# float16 holds, whatever the loss scale.
FLOAT16_SIZES = {"resnet_v1_152": 64, "resnet_v1_200": 64}
NAMES = [name if name in QUICK else slow(name) for name in SIZES]


def settings_of(name, **changes):
    size = SIZES[name]
    given = {
        "model_name": name,
        "image_shape": (3, size, size),
        "loss_type": "softmax",
        "num_classes": CLASSES,
        "global_batch_size": 4,
        **changes,
    }
    return Settings.from_values(**given)


def optimizer():
    """Clips: gradients of so few and small images can be huge, see `trained`."""
    return plsc_tf.Momentum(0.01, global_clipnorm=1.0)


def trained(name, dtype="float32", replicas=1, **changes):
    """The model after one step, and the backbone's weights before it.

    In float16 a step may overflow, which lowers the loss scale and changes nothing:
    the last feature maps are of one pixel, and batch normalisation of four numbers that
    are much alike multiplies gradients.
    """
    strategy = make_strategy(replicas)
    size = FLOAT16_SIZES.get(name, SIZES[name]) if dtype == "float16" else SIZES[name]
    settings = settings_of(name, image_shape=(3, size, size), **changes)
    model = recipe.build_model(settings, strategy, Precision(dtype))
    before = [v.numpy().copy() for v in model.backbone.trainable_variables]
    loss_scale = None
    with strategy.scope():
        if dtype == "float16":
            loss_scale = plsc_tf.LossScale(
                128.0, decr_every_n_nan_or_inf=1, decr_ratio=0.25
            )
        model.compile(optimizer(), loss_scale=loss_scale)
    images = np.random.default_rng(0).integers(0, 256, (4, size, size, 3), np.uint8)
    # At most with loss scales of 128, 32, 8, 2 and 1.
    for _ in range(5 if loss_scale else 1):
        result = model.train_on_batch(images, np.arange(4) % CLASSES)
        assert np.isfinite(result["loss"])
        if result.get("finite", True):
            break
        assert changed(model, before) == 0
    assert model.trainer.position.global_step == 1
    return model, before, images


def changed(model, before):
    """The share of the backbone's weights that a step has changed."""
    pairs = zip(model.backbone.trainable_variables, before, strict=True)
    return np.mean([np.any(variable.numpy() != old) for variable, old in pairs])


@pytest.mark.parametrize("name", NAMES)
def test_trains_saves_loads_and_exports(name, tmp_path):
    model, before, images = trained(name)
    assert changed(model, before) > 0.5
    has_auxiliary_logits = name in ENTRIES and ENTRIES[name].auxiliary is not None
    assert (model.auxiliary is not None) == has_auxiliary_logits
    if has_auxiliary_logits:
        assert np.any(model.auxiliary.branch.get_layer("auxiliary_logits").bias != 0)
    expected = model.embed(images)
    assert np.isfinite(expected).all()
    state.save(str(tmp_path / "step"), model, {})
    plain = Precision("float32")
    again = recipe.build_model(settings_of(name), make_strategy(1), plain)
    with again.strategy.scope():
        again.compile(optimizer())
    state.restore(str(tmp_path / "step"), again)
    np.testing.assert_array_equal(again.embed(images), expected)
    model.backbone.save(tmp_path / "backbone.keras")
    loaded = keras.models.load_model(tmp_path / "backbone.keras")
    # Rounding is relative to the largest numbers, as in the proof of an export.
    most = 1e-5 * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(
        loaded(again.normalize(images), training=False), expected, rtol=0, atol=most
    )
    # Compares what it has written with the network itself.
    path = plsc_tf.export_saved_model(again, str(tmp_path / "export"))
    assert tf.io.gfile.exists(f"{path}/saved_model.pb")


@pytest.fixture
def untraced_where_large(name):
    """Without tf.function for the networks of `LARGE`."""
    tf.config.run_functions_eagerly(name.startswith(LARGE))
    yield
    tf.config.run_functions_eagerly(False)
    keras.backend.clear_session()


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float32", "alexnet_v2"),
        ("float16", "mobilenet_v1_025"),
        ("bfloat16", "lenet"),
        *(
            slow(dtype, name)
            for dtype in ("bfloat16", "float16", "float32")
            for name in (FAMILIES if dtype == "float32" else SIZES)
        ),
    ],
)
@pytest.mark.usefixtures("untraced_where_large")
def test_trains_a_step_in_every_precision(dtype, name):
    model, before, images = trained(name, dtype)
    assert changed(model, before) > 0.3
    assert model.backbone.trainable_variables[0].dtype == "float32"
    embedded = model.embed(images)
    assert embedded.dtype == np.float32
    assert np.isfinite(embedded).all()


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_smaller_images_are_refused_with_the_smallest_size(name):
    size = ENTRIES[name].smallest - 1
    with pytest.raises(ValueError, match=f"at least {size + 1} x {size + 1} pixels"):
        backbones.build(name, image_shape=(size, 400, 3))


def test_an_embedding_layer_comes_where_a_size_is_asked_for():
    assert backbones.build("lenet", image_shape=(8, 8, 3)).output_shape == (None, 1024)
    asked = backbones.build("lenet", image_shape=(8, 8, 3), embedding_size=16)
    assert asked.output_shape == (None, 16)
    assert asked.layers[-1].name == "embedding"
    assert backbones.build("iresnet10", image_shape=(16, 16, 3)).output_shape[1] == 512


def test_the_network_decides_what_the_flags_leave_open():
    def decided(**values):
        found = recipe.complete(Settings.from_values(**values))
        given = found.preprocessing
        return given.image_shape, found.model.emb_size, given.preprocessing_name

    assert decided() == ((3, 112, 112), 512, None)
    assert decided(model_name="my.Network") == ((3, 112, 112), 512, None)
    assert decided(model_name="LeNet") == ((3, 28, 28), None, "lenet")
    assert decided(model_name="inception_resnet_v2")[0] == (3, 299, 299)
    assert decided(model_name="resnet_v1_50")[2] == "vgg"
    asked = {"image_shape": (3, 64, 48), "emb_size": 8, "preprocessing_name": "face"}
    assert decided(model_name="vgg_16", **asked) == ((3, 64, 48), 8, "face")


def test_frozen_layers_stay_and_the_others_train():
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8)
    network = {"model_name": "iresnet", "model_options": "depths=1-1,width=4,head=gap"}
    network |= {"image_shape": (3, 8, 8), "emb_size": 5, "freeze_layers": "stem"}
    settings = settings_of("lenet", **network)
    model = recipe.build_model(settings, make_strategy(2), Precision())
    with model.strategy.scope():
        model.compile(plsc_tf.Momentum(0.1))
    layers = [layer for layer in model.backbone.layers if layer.weights]
    before = {layer.name: layer.get_weights() for layer in layers}
    assert len(before) > 9
    model.train_on_batch(images, np.arange(4) % CLASSES)
    model.synchronize_statistics()
    for layer in layers:
        pairs = zip(before[layer.name], layer.get_weights(), strict=True)
        same = all(np.array_equal(old, new) for old, new in pairs)
        assert same == layer.name.startswith("stem"), layer.name


def test_layers_train_with_their_own_multiple_of_the_rate():
    size = SIZES["lenet"]
    images = np.random.default_rng(0).integers(0, 256, (4, size, size, 3))

    def moved(factors):
        settings = settings_of("lenet", dropout=0.0)
        model = recipe.build_model(settings, make_strategy(2), Precision())
        before = {v.path: v.numpy() for v in model.trainable_variables}
        with model.strategy.scope():
            model.compile(plsc_tf.Momentum(0.1, l2=0.0), rate_factors=factors)
        model.train_on_batch(images, np.arange(4) % CLASSES)
        after = {v.path: v.numpy() for v in model.trainable_variables}
        return {path: after[path] - before[path] for path in before}

    plain = moved({})
    # Of two that match conv2 the last one counts.
    given = LearningRate(learning_rate_factors=("conv:0.25", "conv2:0", "nothing:1"))
    factors = given.parsed("learning_rate_factors")
    assert factors == {"conv": 0.25, "conv2": 0.0, "nothing": 1.0}
    scaled = moved({"conv": 0.25, "conv2": 0.0})
    factors = {"conv1": 0.25, "conv2": 0.0}
    for path, change in plain.items():
        factor = factors.get(path.split("/")[0], 1.0)
        assert np.abs(change).max() > 0
        # A weight near 1 is rounded by 2**-24 in each of the two.
        np.testing.assert_allclose(scaled[path], factor * change, rtol=0, atol=2e-7)


def test_a_pattern_that_names_no_layer_is_refused():
    settings = settings_of("lenet", freeze_layers="cnov1")
    with pytest.raises(ValueError, match=r"freeze_layers='cnov1'.*conv1"):
        recipe.build_model(settings, make_strategy(1), Precision())
    model = recipe.build_model(settings_of("lenet"), make_strategy(1), Precision())
    with pytest.raises(ValueError, match=r"learning_rate_factors='cnov1'.*conv1"):
        model.compile(plsc_tf.Momentum(0.1), rate_factors={"cnov1": 0.1})
    settings = settings_of("lenet", freeze_layers="conv(")
    with pytest.raises(ValueError, match="regular expression"):
        recipe.build_model(settings, make_strategy(1), Precision())
