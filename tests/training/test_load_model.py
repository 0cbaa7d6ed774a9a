"""The weights of a training run in another process: `load_model`, `restore`."""

import json
import shutil

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.checkpoints import manifest
from plsc_tf.jobs import train, trained
from plsc_tf.options.settings import Settings
from plsc_tf.training import model_config, state
from plsc_tf.training.average import Averaging
from tests.checkpoints.small import seal
from tests.jobs import tiny_run
from tests.networks import flat
from tests.training import checkpointed

IMAGES = np.random.default_rng(1).integers(0, 256, (6, 8, 8, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    """(the folder of a run saved from Python, its embeddings, class weights)."""
    folder = tmp_path_factory.mktemp("saved") / "run"
    checkpointed.fit(model, plsc_tf.Checkpoint(folder))
    return folder, model.embed(IMAGES), model.head.weights_as_numpy()


@pytest.fixture
def forged(saved, tmp_path):
    """(a copy of the checkpoint, the content of its manifest)."""
    shutil.copytree(saved[0] / "1", tmp_path / "1")
    return tmp_path / "1", manifest.read(str(tmp_path / "1"))


def assert_refused(path, content, message):
    """A manifest whose checksums are right."""
    seal(path, content)
    with pytest.raises(ValueError, match=message):
        plsc_tf.load_model(path)


def assert_is(found, saved):
    np.testing.assert_allclose(found.embed(IMAGES), saved[1], atol=1e-5)
    np.testing.assert_array_equal(found.head.weights_as_numpy(), saved[2])


@pytest.mark.parametrize("replicas", [1, 3])
def test_on_any_number_of_devices(saved, replicas):
    with plsc_tf.strategy(replicas).scope():
        found = plsc_tf.load_model(saved[0] / "1")
    assert found.strategy.num_replicas_in_sync == replicas
    assert_is(found, saved)
    assert (found.head.scale, found.head.loss) == (8.0, plsc_tf.ARCFACE)


def test_variables_that_other_code_never_initialized_do_not_matter(saved):
    with keras.StatelessScope(initialize_variables=False):
        left = keras.Variable("ones", shape=(2,))
    with plsc_tf.strategy(1).scope():
        assert_is(plsc_tf.load_model(saved[0] / "1"), saved)
    with keras.StatelessScope():
        pass  # Keras initializes it at its end, as it does without plsc_tf.
    np.testing.assert_array_equal(left, [1, 1])


def test_an_uncompiled_model_restores_its_weights_and_its_losss_state(tmp_path, caplog):
    model = checkpointed.build(1, loss=plsc_tf.ADAFACE)
    new = state.head_state(model)
    checkpointed.fit(model, plsc_tf.Checkpoint(tmp_path), epochs=1)
    with plsc_tf.strategy(2).scope():
        head = plsc_tf.ShardedHead(5, loss=plsc_tf.ADAFACE)
        found = plsc_tf.Classifier(checkpointed.network(), head)
    start = plsc_tf.Checkpoint(tmp_path).restore(found)
    assert start == {"initial_epoch": 0, "initial_step": 0}
    assert "the model is not compiled" in caplog.text
    assert_is(found, (None, model.embed(IMAGES), model.head.weights_as_numpy()))
    assert state.head_state(found) == state.head_state(model) != new


@pytest.mark.parametrize("scheduled_first", [False, True])
def test_a_run_resumes_with_another_kind_of_learning_rate(tmp_path, scheduled_first):
    def fixed():
        return plsc_tf.Momentum(0.05)

    def scheduled():
        return plsc_tf.Momentum(keras.optimizers.schedules.CosineDecay(0.05, 100))

    kinds = [scheduled, fixed] if scheduled_first else [fixed, scheduled]
    before, after = (checkpointed.build(1, optimizer=kind) for kind in kinds)
    checkpointed.fit(before, plsc_tf.Checkpoint(tmp_path), epochs=1)
    plsc_tf.Checkpoint(tmp_path).restore(after)
    both = before.optimizer.variables, after.optimizer.variables
    slots = [[v.numpy() for v in each if "velocity" in v.path] for each in both]
    np.testing.assert_equal(*slots)
    assert after.optimizer.iterations.numpy() == before.optimizer.iterations.numpy()


class Doubled(keras.layers.Layer):
    def call(self, inputs):
        return 2 * inputs


def own_network():
    return flat((8, 8, 3), Doubled(), keras.layers.Dense(4))


def test_a_network_with_layers_of_ones_own_is_asked_for(tmp_path):
    with plsc_tf.strategy(1).scope():
        loss = plsc_tf.InterclassFilter(plsc_tf.AdaFace(m=0.3), threshold=0.4)
        model = plsc_tf.Classifier(own_network(), plsc_tf.DenseHead(3, loss=loss))
    path = str(tmp_path / "weights")
    state.save(path, model, {}, weights_only=True)
    with pytest.raises(ValueError, match="does not hold its network.*backbone="):
        plsc_tf.load_model(path)
    for backbone in (own_network, own_network()):
        found = plsc_tf.load_model(path, backbone=backbone)
        np.testing.assert_allclose(found.embed(IMAGES), model.embed(IMAGES), atol=1e-5)
    assert type(found.head) is plsc_tf.DenseHead and found.head.loss == loss


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    with plsc_tf.strategy(1).scope():
        code = keras.layers.Lambda(lambda images: images[:, 0, :, 0])
        layers = [keras.Input((8, 8, 3)), code]
        model = plsc_tf.Classifier(keras.Sequential(layers), plsc_tf.ShardedHead(3))
    state.save(str(tmp_path / "weights"), model, {}, weights_only=True)
    with pytest.raises(ValueError, match="does not hold its network"):
        plsc_tf.load_model(tmp_path / "weights")
    # Another name of the layer, which would call any function of Keras.
    described = json.loads(model.backbone.to_json())
    layer = described["config"]["layers"][1]
    paths = "|Dot keras|layers.Lambda keras.utils|pad keras.layers|function"
    for path in paths.split():
        module, _, name = path.partition("|")
        layer |= {"module": module, "class_name": name, "config": "TFSMLayer"}
        with pytest.raises(ValueError, match="which can run code"):
            model_config.make_network(json.dumps(described))


# A file of 14 KB would take a minute to load, one of 20 KB hours. Keras builds a
# Sequential again with each layer, and repeats all of a model's text in an error for
# each model that contains it.
def test_networks_of_too_many_layers_or_models_are_refused():
    image = keras.Input((None,))
    model = called = keras.Sequential([image, keras.layers.ReLU()])
    for _ in range(5):
        outputs = image
        for _ in range(8):
            outputs = called(outputs)
        called = keras.Model(image, outputs)
    long = keras.Sequential([image, *(keras.layers.ReLU() for _ in range(200))])
    uncalled = [{"module": "a", "class_name": "ReLU"}] * 5001
    for text in called.to_json(), long.to_json(), json.dumps({"layers": uncalled}):
        with pytest.raises(ValueError, match="layers are called over 5000 times"):
            model_config.make_network(text)
    for _ in range(12):
        model = keras.Sequential([image, model])
    for text, rule in ((model.to_json(), "at most 32 deep"), ("9" * 2**22, "charact")):
        with pytest.raises(ValueError, match=rule):
            model_config.make_network(text)


# A few bytes would make Keras compute terabytes when it builds the network.
def test_a_network_computes_nothing_when_it_is_built():
    inputs = keras.Input((2,))
    described = keras.Model(inputs, keras.layers.Dense(2)(inputs)).to_json()
    network = json.loads(described)
    model_config.make_network(described)
    network["config"]["layers"][1]["inbound_nodes"][0]["args"] = [[[1.0, 2.0]]]
    with pytest.raises(ValueError, match="called without another layer's output"):
        model_config.make_network(json.dumps(network))
    # Also in a compiled network, which is loaded without its metrics.
    metric = keras.saving.serialize_keras_object(keras.metrics.AUC())
    metric["config"]["num_thresholds"] = 10**6
    network = json.loads(described) | {"compile_config": {"metrics": [metric]}}
    model_config.make_network(json.dumps(network))
    means = {"class_name": "Normalization", "config": {"mean": 0, "variance": 1}}
    for layer, name in ((metric, "AUC"), (means, "Normalization")):
        network["config"]["layers"][1]["config"]["activation"] = layer
        with pytest.raises(ValueError, match=f"has a {name}, which can run"):
            model_config.make_network(json.dumps(network))


def test_a_network_larger_than_its_weights_is_not_built(forged):
    path, content = forged
    network = content["state"]["network"]
    content["state"]["network"] = network.replace('"units": 6', f'"units": {2**40}')
    assert content["state"]["network"] != network
    assert_refused(path, content, r"dense.*\[.*6\] in the checkpoint")
    # No later scope creates what was refused.
    with keras.StatelessScope():
        pass
    # A layer that hides in an argument of another one.
    inputs = keras.Input((8, 8, 3))
    outputs = keras.models.model_from_json(network)(inputs)
    described = json.loads(keras.Model(inputs, outputs).to_json())
    hidden = keras.saving.serialize_keras_object(keras.layers.Dense(2**20))
    hidden["build_config"] = {"input_shape": [None, 2**20]}
    described["config"]["layers"][1]["inbound_nodes"][0]["kwargs"]["training"] = hidden
    content["state"]["network"] = json.dumps(described)
    assert_refused(path, content, "describes weights outside of its network")


# Memory was taken for what a manifest of some kilobytes claims.
def test_no_model_is_built_for_files_that_are_smaller_than_claimed(forged):
    (path, content), classes = forged, 2**40
    content["state"]["num_classes"] = classes
    for array in content["arrays"].values():
        array["shape"][0] = classes
        array["parts"] = [array["parts"][0] | {"first": 0, "last": classes - 1}]
        content["files"][array["parts"][0]["file"]]["bytes"] = 2**50
    (path / manifest.NAME).write_bytes(manifest.encode(content))
    settings = Settings.from_values(checkpoint_dir=str(path))
    for load in (plsc_tf.load_model, lambda _: trained.load(settings, with_head=True)):
        with pytest.raises(manifest.DamagedCheckpointError, match=r"rows.* instead of"):
            load(path)
    size = content["files"][content["backbone"]["file"]]["bytes"]
    content["files"][content["backbone"]["file"]]["bytes"] = size + 1
    (path / manifest.NAME).write_bytes(manifest.encode(content))
    with pytest.raises(manifest.DamagedCheckpointError, match=f"{size} bytes instead"):
        plsc_tf.load_model(path, with_head=False)


# Ten megabytes, read again and again, or by links to them, would become gigabytes.
@pytest.mark.parametrize("kind", ["name", "link"])
def test_parts_are_not_the_same_bytes(forged, kind):
    (path, content), again = forged, "rows/again.npy"
    weight, size = content["arrays"]["weight"], content["state"]["num_classes"]
    name = weight["parts"][0]["file"]
    (path / again).hardlink_to(path / name)
    content["files"][again] = content["files"][name]
    names = [name] * 9 if kind == "name" else [name, again]
    parts = [{"first": k * size, "last": (k + 1) * size - 1} for k in range(len(names))]
    weight["parts"] = [{"file": n, **p} for n, p in zip(names, parts, strict=True)]
    content["arrays"] = {"weight": weight}
    content["state"]["num_classes"] = weight["shape"][0] = len(names) * size
    (path / manifest.NAME).write_bytes(manifest.encode(content))
    with pytest.raises(manifest.DamagedCheckpointError, match="fit into|links to one"):
        plsc_tf.load_model(path)


# Each class of a head takes a row that is as long as an embedding of the network.
def test_a_network_of_longer_embeddings_is_refused(forged):
    path, content = forged
    content["state"]["embedding_size"] = content["arrays"]["weight"]["shape"][1] = 3
    assert_refused(path, content, "describes another embedding size")


@pytest.mark.parametrize("in_use", [True, False])
def test_averages_are_loaded_where_the_training_uses_them(tmp_path, in_use):
    model = checkpointed.build(2)
    model.compile(model.optimizer, averaging=Averaging(0.5, in_use=in_use))
    checkpointed.fit(model, plsc_tf.Checkpoint(tmp_path), epochs=1)
    with model.trainer.averaged():
        expected = (None, model.embed(IMAGES), model.head.weights_as_numpy())
    assert_is(plsc_tf.load_model(tmp_path), expected)


def test_the_loss_is_that_of_the_training(tmp_path):
    model = checkpointed.build(1, label_smoothing=0.2)
    checkpointed.fit(model, plsc_tf.Checkpoint(tmp_path), epochs=1)
    with plsc_tf.strategy(3).scope():
        found = plsc_tf.load_model(tmp_path)
        found.compile(plsc_tf.Momentum(0.05))
    expected = model.evaluate(checkpointed.data(), verbose=0)
    assert found.evaluate(checkpointed.data(), verbose=0) == pytest.approx(expected)
    start = plsc_tf.Checkpoint(tmp_path).restore(found)
    assert start == {"initial_epoch": 1, "initial_step": 0}


def test_a_run_of_the_command_with_a_loss_of_ones_own(tmp_path, caplog):
    loss = "dist_tests.jobs.test_own_loss.Cosine"
    train.train(tiny_run.settings(tmp_path, stop_at_step=2, loss_type=loss))
    found = plsc_tf.load_model(tmp_path)
    assert found.image_size == (16, 16) and found.head.num_classes == 7
    assert "does not hold the loss of its head" in caplog.text
