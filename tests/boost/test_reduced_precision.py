"""Stage 2 of networks that compute in bfloat16 or float16."""

import functools

import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from tests.boost.test_reduced_step import ROUNDING, run, vector
from tests.marks import slow
from tests.training.checkpointed import snapshot


@pytest.fixture
def prepare(reduce):
    """A stage 2 in half precision: (model, its `ReducedStepper`)."""

    def make(dtype, *arguments, **options):
        if dtype == "float16":
            scale = functools.partial(plsc_tf.LossScale, decr_every_n_nan_or_inf=1)
            options["compiled"] = {"loss_scale": lambda: scale(1024.0)}
        return reduce(*arguments, dtype=dtype, **options)

    return make


@pytest.mark.parametrize("dtype", ["float16", slow("float32"), slow("bfloat16")])
def test_a_trial_of_no_length_has_the_batchs_loss(prepare, pictures, dtype):
    model, steps = prepare(dtype, dropout=0.5)
    found, seen, move = [], {}, steps._move

    def trial(batch, path, size):
        seen.update(batch=batch, path=path)
        return steps_try(batch, path, size)

    def measured(*arguments):
        size = tf.zeros([])
        found.append(float(steps._host(steps_try(*seen.values(), size))))
        return move(*arguments)

    steps_try, steps._try, steps._move = steps._try, trial, measured
    losses = run(model, steps, pictures, 3)[0]
    # To rounding: the graphs of both passes are not the same. In half precision what
    # kernels add up is float32, but each of four layers' outputs may be rounded.
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(dtype)
    rtol = ROUNDING if unit is None else 16 * 4 * unit
    np.testing.assert_allclose(found, losses, rtol=rtol)


@pytest.mark.parametrize(
    ("scope", "replicas"), [("all", 1), slow("all", 2), slow("backbone", 2)]
)
def test_an_overflow_moves_nothing_and_lowers_the_scale(
    prepare, pictures, scope, replicas
):
    model, steps = prepare("float16", replicas, scope)
    run(model, steps, pictures, 2)
    before, weights = snapshot(model), vector(model, "all")
    assert np.any(before["dim_reduce/step"]) and np.any(before["dim_reduce/residual"])
    # Gradients of this size have no float16, while every loss has.
    model.loss_scale.restore({"scale": 2.0**40, "good_steps": 0, "bad_steps": 0})
    result = model.train_on_batch(*pictures)
    assert not result["finite"] and np.isfinite(result["loss"])
    assert steps.last["trials"] == [] and steps.last["accepted"] == 0.0
    np.testing.assert_equal(snapshot(model), before)
    assert model.loss_scale.state()["scale"] == 2.0**39
    # A trial may overflow although the batch has not.
    model.loss_scale.restore({"scale": 64.0, "good_steps": 0, "bad_steps": 0})
    inverse = model.trainer.updater.bfgs.inverse
    model.trainer.updater.bfgs.inverse = 1e10 * np.eye(5)
    result = model.train_on_batch(*pictures)
    assert result["step_size"] == 0.0 and np.isfinite(result["loss"])
    assert not np.isfinite(steps.last["trials"]).any()
    assert model.loss_scale.state()["scale"] == 64.0
    after = snapshot(model)
    np.testing.assert_array_equal(after["dim_reduce/step"], before["dim_reduce/step"])
    # Along the residual only; the optimizer goes on with what is not reduced.
    reduced = len(vector(model, scope))
    moved = (vector(model, "all") - weights)[:reduced]
    assert 0 < np.linalg.norm(moved) < 1e-2
    # And the walk goes on.
    model.trainer.updater.bfgs.inverse = inverse
    assert np.isfinite(model.train_on_batch(*pictures)["loss"])
