"""The model: steps, embeddings, what it refuses."""

import keras
import numpy as np
import pytest

import plsc_tf
from tests.networks import flat


def test_a_step_learns(make_model, pictures):
    model = make_model(metrics=["accuracy", "top5_accuracy"])
    losses = [model.train_on_batch(*pictures)["loss"] for _ in range(15)]
    assert losses[-1] < losses[0] / 2
    assert model.trainer.position.global_step == 15
    # five classes: the true one is always among the first five
    assert model.trainer.step_result["top5_accuracy"] == pytest.approx(1.0)


def test_the_network_sees_normalized_images(any_model, pictures):
    expected = any_model.backbone((pictures[0].astype(np.float32) - 127.5) / 128)
    np.testing.assert_allclose(any_model.embed(pictures[0]), expected, atol=1e-5)


def test_embeddings_are_the_same_on_every_replica_after_training(make_model, pictures):
    # Keras's batch norm follows each replica's own batches.
    model = make_model(replicas=2, batch_norm=True)
    for _ in range(3):
        model.train_on_batch(*pictures)
    same = np.repeat(pictures[0][:1], 8, axis=0)
    embeddings = model.embed(same)
    assert embeddings.shape == (8, 8)
    np.testing.assert_allclose(embeddings, embeddings[:1].repeat(8, axis=0), atol=1e-6)
    exported = model.inference_network()(same[:1].astype(np.float32))
    np.testing.assert_allclose(exported, embeddings[:1], atol=1e-5)


def test_embed_takes_any_number_and_size_of_pictures(make_model, pictures):
    model = make_model(replicas=3)
    assert model.embed(pictures[0][:0]).shape == (0, 8)
    whole = model.embed(pictures[0], batch_size=7)
    np.testing.assert_allclose(whole[5:6], model.embed(pictures[0][5:6]), atol=1e-5)
    small, large = (np.full((1, side, side, 3), 99, np.uint8) for side in (16, 40))
    np.testing.assert_allclose(model.embed(large), model.embed(small), atol=1e-5)


def test_penalties_of_a_users_layers_count_once_on_any_replica_count(pictures):
    found = []
    for replicas in (1, 2):
        keras.utils.set_random_seed(0)
        with plsc_tf.strategy(replicas).scope():
            dense = keras.layers.Dense(8, kernel_regularizer=keras.regularizers.L2(0.1))
            head = plsc_tf.ShardedHead(5, scale=16.0)
            model = plsc_tf.Classifier(flat((16, 16, 3), dense), head)
            model.compile(plsc_tf.Momentum(0.01, l2=0.0))
        penalty = 0.1 * float(np.square(dense.kernel.numpy()).sum())
        losses = [model.train_on_batch(*pictures)["loss"] for _ in range(3)]
        assert losses[0] > penalty
        found.append(losses)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_what_is_missing_is_said(make_model, pictures):
    backbone = keras.Sequential([keras.Input((16, 16, 3)), keras.layers.Conv2D(4, 3)])
    with pytest.raises(ValueError, match=r"embeddings \[batch, embedding_size\]"):
        plsc_tf.Classifier(backbone, plsc_tf.ShardedHead(5))
    flat = keras.Sequential([backbone, keras.layers.Flatten()])
    with pytest.raises(ValueError, match="compile"):
        plsc_tf.Classifier(flat, plsc_tf.ShardedHead(5)).train_on_batch(*pictures)
    layers = [keras.Input((None, None, 3)), keras.layers.GlobalMaxPooling2D()]
    with pytest.raises(ValueError, match="fix its images' size"):
        plsc_tf.Classifier(keras.Sequential(layers), plsc_tf.ShardedHead(5))
    two = keras.Model(flat.inputs, [flat.outputs[0]] * 2)
    with pytest.raises(ValueError, match="must return embeddings"):
        plsc_tf.Classifier(two, plsc_tf.ShardedHead(5))
    with pytest.raises(ValueError, match="keras.Model with known .*from_user"):
        plsc_tf.Classifier(keras.layers.Dense(8), plsc_tf.ShardedHead(5))
    elsewhere = plsc_tf.Momentum(0.1)
    with pytest.raises(ValueError, match=r"inside strategy.scope\(\)"):
        make_model(optimizer=lambda: elsewhere)


def test_without_a_scope_the_one_device_is_used(pictures):
    backbone = flat((16, 16, 3), keras.layers.Dense(8))
    model = plsc_tf.Classifier(backbone, plsc_tf.ShardedHead(5, scale=16.0))
    model.compile(plsc_tf.Momentum(0.01))
    losses = [model.train_on_batch(*pictures)["loss"] for _ in range(5)]
    assert losses[-1] < losses[0]
    assert model.embed(pictures[0]).shape == (20, 8)


def test_a_model_may_be_compiled_again(make_model, pictures):
    model = make_model(1)
    model.train_on_batch(*pictures)
    with model.strategy.scope():
        model.compile(plsc_tf.Momentum(0.0, l2=0.0))
    before = model.head.weights_as_numpy()
    first = model.train_on_batch(*pictures)["loss"]
    # A rate of 0 moves nothing; the velocity of before is gone.
    assert model.train_on_batch(*pictures)["loss"] == first
    np.testing.assert_array_equal(model.head.weights_as_numpy(), before)
