"""Training in half precision: the loss scale at work, skipped steps, whole runs."""

import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.checkpoints import manifest
from plsc_tf.jobs import train
from plsc_tf.training.loss_scale import LossScale
from plsc_tf.training.sentinel import Sentinel
from tests.jobs.tiny_run import on_one_replica
from tests.networks import compiled
from tests.training.checkpointed import Watch


@pytest.fixture(scope="module")
def half():
    """A compiled float16 classifier with a loss scale: its graph is made once."""

    def backbone():
        size = {"image_shape": (16, 16, 3), "embedding_size": 8, "width": 8}
        return plsc_tf.backbones.build("iresnet", depths=(1,), dtype="float16", **size)

    head, scale = plsc_tf.ShardedHead(5, scale=16.0), LossScale(8.0)
    return compiled(backbone, head, 2, lambda: plsc_tf.Momentum(0.02), loss_scale=scale)


def at_scale(model, scale):
    """The model at step 0 with this loss scale."""
    model.loss_scale.restore({"scale": scale, "good_steps": 0, "bad_steps": 0})
    model.trainer.position.global_step = 0
    return model


def test_what_overflows_float16_is_evaluated_in_float32(half, pictures):
    norms = (layer for layer in half.backbone.layers if hasattr(layer, "gamma"))
    gamma = next(norms).gamma
    before = gamma.numpy()
    gamma.assign(1e6 * gamma)
    assert np.isfinite(half.evaluate(*pictures))
    gamma.assign(before)


def test_a_scale_that_is_too_high_falls_until_training_goes_on(half, pictures):
    model = at_scale(half, 2.0**30)
    images, labels = pictures
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(10).repeat(40)
    seen = []

    def note(step):
        finite = bool(model.trainer.step_result)
        seen.append((finite, model.loss_scale.state()["scale"]))

    history = model.fit(data, verbose=0, callbacks=[Watch(note)])
    skipped = [finite for finite, _ in seen].index(True)
    assert 2 <= skipped < 60
    # PLSC: half of it after every second bad step in a row.
    expected = [2.0 ** (30 - (i + 1) // 2) for i in range(skipped)]
    assert [scale for _, scale in seen[:skipped]] == expected
    assert model.trainer.position.global_step == 80
    assert np.isfinite(history.history["loss"]).all()


def test_at_the_minimum_of_the_scale_the_run_stops(half, pictures, tmp_path):
    images, labels = pictures[0].astype(np.float32), pictures[1]
    images[3, 0, 0, 0] = np.nan
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(10)
    model = at_scale(half, 1.0)
    with pytest.raises(FloatingPointError, match=r"loss scale \(1\) cannot be lowered"):
        model.fit(data, verbose=0)
    with pytest.raises(FloatingPointError, match="step 1 contain NaN.*examples 3"):
        model.fit(data, verbose=0, sentinel=Sentinel(tmp_path))


def test_a_float16_run_and_its_resume(tmp_path):
    options = {
        "use_fp16": True,
        "init_loss_scaling": 64.0,
        "incr_every_n_steps": 4,
        "model_name": "iresnet",
        "model_options": "depths=1-1,width=8,head=gap",
        "amp_lists": "black:PReLU",
    }
    train.train(on_one_replica(tmp_path / "run", **options, stop_at_step=6))
    content = manifest.read(str(tmp_path / "run" / "step_00000006"))
    expected = {"scale": 128.0, "good_steps": 2, "bad_steps": 0}
    assert content["state"]["loss_scale"] == expected
    assert {w["dtype"] for w in content["backbone"]["weights"]} == {"float32"}
    _, outcome = train.train(on_one_replica(tmp_path / "run", **options))
    assert outcome["steps"] == 10 and np.isfinite(outcome["loss"])
    state = manifest.read(outcome["checkpoint_dir"])["state"]
    assert state["loss_scale"]["scale"] == 256  # after 8 finite steps
