"""Tests trainings with a backbone, an optimizer, data and pairs given in Python."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.checkpoints import manifest
from plsc_tf.data.pairs import Pairs
from plsc_tf.jobs import export, train, trained
from plsc_tf.jobs.evaluate import command
from plsc_tf.jobs.parts import Parts
from plsc_tf.options.cli import parse
from plsc_tf.options.settings import Settings
from tests.cluster import plain_network
from tests.jobs.tiny_run import on_one_replica

COUNT, CLASSES = 30, 5
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (COUNT, 16, 16, 3)).astype(np.uint8)
LABELS = np.arange(COUNT) % CLASSES


def network():
    """Returns a network that is built before the training creates its strategy."""
    keras.utils.set_random_seed(1)
    return plain_network.network((16, 16, 3), 8)


def optimizer():
    rate = keras.optimizers.schedules.CosineDecay(0.05, 100)
    return keras.optimizers.Adam(rate, beta_2=0.99, global_clipnorm=1.0)


def examples():
    yield from zip(IMAGES, LABELS, strict=True)


def pairs():
    left = np.arange(20)
    right = (left + np.where(left % 2, 1, CLASSES)) % COUNT
    return {"own": Pairs("own", IMAGES, left, right, LABELS[left] == LABELS[right])}


def parts(**changes):
    given = {"backbone": network(), "optimizer": optimizer(), "source": examples}
    return Parts(**{**given, "pairs": pairs(), **changes})


def settings(folder, **changes):
    values = {"num_classes": CLASSES, "num_sample_per_epoch": COUNT}
    values |= {"dropout": None, "preprocessing_name": "none"}
    return on_one_replica(folder, **{**values, **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder and the results of a finished run."""
    folder = tmp_path_factory.mktemp("given") / "run"
    _, outcome = train.train(settings(folder, with_test=True), parts=parts())
    return folder, outcome


def test_a_run_of_given_parts(finished):
    folder, outcome = finished
    assert outcome["steps"] == 6
    assert list(outcome["verification"]) == ["own"]
    state = manifest.read(outcome["checkpoint_dir"])["state"]
    assert state["given"] == ["backbone", "optimizer", "source"]
    assert state["optimizer"] == "Adam"
    text = (folder / "flags.cfg").read_text()
    assert "# Given in Python, whatever the options say: backbone, optimizer" in text
    assert parse([f"--flagfile={folder}/flags.cfg"]).model.emb_size == 8


def test_a_trained_model_is_evaluated_and_exported(finished):
    folder, outcome = finished
    given = Parts(backbone=network(), pairs=pairs())
    asked = settings(folder)
    rows = dict(command.evaluate(asked, given))
    figure = outcome["verification"]["own"]["accuracy"]
    assert rows["own: accuracy"].startswith(f"{figure:.4f}")
    exported = dict(export.export_checkpoint(asked, given))
    assert tf.saved_model.contains_saved_model(exported["SavedModel"])


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (("source",), "and source from Python. Received: given=backbone and opt"),
        (("backbone", "optimizer", "source"), "from Python. Received: given=no parts"),
    ],
)
def test_a_resume_without_its_parts_is_an_error(finished, left_out, message):
    given = parts(**dict.fromkeys(left_out))
    with pytest.raises(ValueError, match=message):
        train.train(settings(finished[0], num_epochs=3), parts=given)


def test_data_of_unknown_length_trains_unless_the_rate_needs_it(tmp_path, caplog):
    def left_open(**options):
        options |= {"num_epochs": 1, "num_replicas": 2, "batch_size": 5}
        unknown = Settings().dataset.num_sample_per_epoch
        asked = settings(tmp_path, num_sample_per_epoch=unknown, **options)
        return dataclasses.replace(asked, given=asked.given - {"num_sample_per_epoch"})

    for depends in ({"learning_rate_decay_type": "cosine"}, {"warmup_epochs": 0.5}):
        with pytest.raises(ValueError, match="examples in an epoch is unknown"):
            train.train(left_open(**depends), parts=parts())
    # PLSC's piecewise rate depends on steps, not on the length of an epoch. The rate
    # is 0, so the user's model and its copy in the checkpoint keep their weights.
    by_steps = {"learning_rate_decay_type": "piecewise", "lr_steps": (2,)}
    model = network()
    before = model.get_weights()
    given = parts(backbone=model, optimizer=keras.optimizers.SGD(0.0))
    _, outcome = train.train(left_open(**by_steps), parts=given)
    assert outcome["steps"] == 3
    found = trained.load(settings(tmp_path), parts=Parts(backbone=network))
    np.testing.assert_equal(model.get_weights(), before)
    np.testing.assert_equal(found.model.backbone.get_weights(), before)
    assert "Epoch 0 had 3 steps" in caplog.text
    assert caplog.text.count("number of examples in an epoch is unknown") == 1


def few_pairs():
    return {"few": Pairs("few", IMAGES, [0], [1], [True])}


def bad_optimizer():
    built = optimizer()
    built.build([keras.Variable([1.0])])
    return built


@pytest.mark.parametrize(
    ("given", "flags", "message"),
    [
        ({"optimizer": lambda: "SGDD"}, {}, "SGDD"),
        ({"optimizer": bad_optimizer}, {}, "must be new"),
        ({}, {"max_gradient_norm": 5}, "global_clipnorm=5"),
        ({}, {"labels_offset": 1}, "labels_offset does not apply"),
        ({}, {"emb_size": 16}, "must return embeddings of size 16"),
        ({}, {"dropout": 0.5}, "library's networks"),
        ({"pairs": few_pairs}, {"with_test": True}, "at least 10 pairs"),
    ],
)
def test_what_does_not_go_together_is_told(tmp_path, given, flags, message):
    own = {name: make() for name, make in given.items()}
    with pytest.raises((ValueError, TypeError), match=message):
        train.train(settings(tmp_path, **flags), parts=parts(**own))


def test_val_targets_that_pairs_replace_are_named(caplog):
    parts = Parts(pairs={"mine": None})
    parts.drop_replaced_targets(Settings())
    assert not caplog.messages
    asked = Settings.from_values(val_targets="lfw,test")
    assert parts.drop_replaced_targets(asked).evaluation.val_targets == ("test",)
    told = "No effect here: val_targets=lfw (pairs from Python replace them)."
    assert caplog.messages == [told]
