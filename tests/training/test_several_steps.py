"""Steps that are launched ahead train as single ones do, bit for bit."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.training.sentinel import Sentinel
from tests.marks import slow
from tests.training.checkpointed import snapshot


class Told(keras.callbacks.Callback):
    """Keeps what is told of every step; looks at the weights where it says so."""

    def __init__(self, every=0):
        super().__init__()
        self.every = every
        self.steps, self.kernels, self.untold = [], {}, []

    def wants(self, step):
        return bool(self.every) and step % self.every == 0

    def on_train_batch_end(self, batch, logs=None):
        step = self.model.trainer.position.global_step
        result = dict(self.model.trainer.step_result)
        self.steps.append((batch, step, result, dict(logs)))
        if self.wants(step):
            self.kernels[step] = self.model.backbone.layers[0].kernel.numpy()
        self.untold.append(self.model.trainer.calls.unreported)


def dataset(bad_step=None):
    """Ten batches of 8."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (10, 8, 16, 16, 3)).astype(np.float32)
    if bad_step is not None:
        images[bad_step, 2, 0, 0, 0] = np.nan
    labels = np.tile(np.arange(8) % 5, (10, 1))
    return tf.data.Dataset.from_tensor_slices((images, labels))


class Plain(keras.callbacks.Callback):
    """Has no `wants`, so no step begins before it is told of the last one."""

    def on_train_batch_end(self, batch, logs=None):
        assert self.model.trainer.calls.unreported == 0


def trained(make_model, folder, count, bad_step, callbacks, scaled=False, **options):
    if scaled:
        options["loss_scale"] = plsc_tf.LossScale(64.0, decr_every_n_nan_or_inf=1)
    options |= {"dropout": 0.3, "steps_per_execution": count}
    model = make_model(batch_norm=True, **options)
    options = {"sentinel": Sentinel(folder, "skip"), "stop_at_step": 9}
    model.fit(dataset(bad_step), verbose=0, callbacks=callbacks, **options)
    scale = model.loss_scale.state() if scaled else None
    reports = sorted(path.name for path in folder.rglob("*.json"))
    return list(snapshot(model).values()), scale, reports


@pytest.mark.parametrize(
    ("count", "bad_step", "options", "untold"),
    [
        # Step 1 makes the graph. 5 and 6 are single, as 6 is wanted, and 7 waits.
        (3, None, {"every": 6, "replicas": 1}, [0, 3, 2, 1, 1, 0, 2, 1, 0]),
        # Step 5 is bad; those that followed it are made again.
        (1, 4, {"scaled": True}, [0, 1, 1, 1, 0, 1, 1, 1, 0]),
        # Step 3 is bad, and step 4 of its call is made again.
        slow(3, 2, {"replicas": 1}, [0, 1, 0, 5, 4, 3, 2, 1, 0]),
        slow(3, 4, {"scaled": True}, [0, 5, 4, 3, 0, 3, 2, 1, 0]),
    ],
)
def test_all_is_as_with_single_steps(
    make_model, tmp_path, count, bad_step, options, untold
):
    every = options.pop("every", 0)
    single, ahead = Told(every), Told(every)
    callbacks = [single, Plain()]
    expected = trained(make_model, tmp_path / "1", 1, bad_step, callbacks, **options)
    found = trained(make_model, tmp_path / "2", count, bad_step, [ahead], **options)
    assert ahead.steps == single.steps and len(single.steps) == 9
    assert found[1:] == expected[1:]
    np.testing.assert_equal(found[0], expected[0])
    np.testing.assert_equal(ahead.kernels, single.kernels)
    assert ahead.untold == untold
    assert list(single.kernels) == ([6] if every else [])


def test_an_error_between_two_steps_leaves_the_position_of_the_weights(make_model):
    class Fails(Told):
        def on_train_batch_end(self, batch, logs=None):
            if self.model.trainer.position.global_step == 2:
                raise OSError("full")

    model = make_model(1, steps_per_execution=3)
    with pytest.raises(OSError, match="full"):
        model.fit(dataset(), verbose=0, callbacks=[Fails()])
    assert model.trainer.position.global_step == 7
    assert model.optimizer.iterations.numpy() == 7
    model.fit(dataset(), verbose=0, callbacks=[Plain()])
    assert model.trainer.position.global_step == 7 + 10


def test_what_cannot_be_is_refused(make_model):
    for steps in (0, 2.5):
        with pytest.raises(ValueError, match=f"steps_per_execution={steps}"):
            make_model(steps_per_execution=steps)
    model = make_model()
    model.trainer.votes = object()
    with pytest.raises(ValueError, match="workers agree"):
        model.compile(plsc_tf.Momentum(0.1), steps_per_execution=2)
