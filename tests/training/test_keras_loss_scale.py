"""Keras's own ways to ask for a loss scale: its optimizer and its dtype policy."""

import keras
import pytest

import plsc_tf
from plsc_tf.checkpoints import manifest
from plsc_tf.jobs import train
from plsc_tf.jobs.parts import Parts
from tests.jobs import tiny_run


def scaled(**options):
    inner = keras.optimizers.SGD(0.05, momentum=0.9)
    return keras.optimizers.LossScaleOptimizer(inner, **options)


def test_its_optimizer_is_its_inner_one_with_our_scale(make_model, pictures, caplog):
    options = {"initial_scale": 1024, "dynamic_growth_steps": 3}
    model = make_model(1, optimizer=lambda: scaled(**options))
    assert "checks the gradients of one replica only, SGD is used" in caplog.text
    assert "LossScale(1024, incr_every_n_steps=3" in caplog.text
    assert type(model.optimizer) is keras.optimizers.SGD
    plain = make_model(1, optimizer=lambda: keras.optimizers.SGD(0.05, momentum=0.9))
    for _ in range(3):
        found = model.train_on_batch(*pictures)["loss"]
        # The scale is a power of two, so that it changes no bit.
        assert found == plain.train_on_batch(*pictures)["loss"]
    assert float(model.loss_scale.value()) == 2048
    # Keras halves at the first gradient that is not finite.
    model.loss_scale.update(False)
    assert float(model.loss_scale.value()) == 1024


def test_two_loss_scales_are_refused(make_model):
    with pytest.raises(ValueError, match="one loss scale.*LossScaleOptimizer"):
        make_model(optimizer=scaled, loss_scale=plsc_tf.LossScale())


def test_a_model_of_the_policy_mixed_float16_has_a_dynamic_loss_scale(
    set_policy, make_model, pictures, caplog
):
    set_policy("mixed_float16")
    model = make_model(1, optimizer=lambda: "sgd")
    assert "mixed_float16, so compile adds plsc_tf.LossScale(32768" in caplog.text
    assert float(model.loss_scale.value()) == 2.0**15
    skipped = 0
    while model.train_on_batch(*pictures).get("finite") is False:
        skipped += 1
    # Each overflow of float16 has halved the scale, as Keras's optimizer does.
    assert 0 < skipped < 10
    assert float(model.loss_scale.value()) == 2.0 ** (15 - skipped)
    none = plsc_tf.LossScale(1.0, dynamic=False)
    assert make_model(loss_scale=none).loss_scale is none


def test_a_run_of_such_an_optimizer(tmp_path):
    parts = Parts(optimizer=scaled(initial_scale=64.0))
    _, outcome = train.train(tiny_run.settings(tmp_path, stop_at_step=1), parts=parts)
    state = manifest.read(outcome["checkpoint_dir"])["state"]
    assert state["optimizer"] == "SGD"
    assert state["loss_scale"]["scale"] == 64
    twice = tiny_run.settings(tmp_path / "2", use_fp16=True, init_loss_scaling=8.0)
    with pytest.raises(ValueError, match="one loss scale, not a LossScaleOptimizer"):
        train.train(twice, parts=parts)
