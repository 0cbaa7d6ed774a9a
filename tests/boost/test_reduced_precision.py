"""Stage 2 of networks that compute in bfloat16 or float16."""

import functools

import numpy as np
import pytest

import plsc_tf
from tests.boost.test_reduced_step import run, vector
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


@pytest.mark.parametrize(("dtype", "bits"), [("float16", 11), slow("bfloat16", 8)])
def test_a_step_begins_with_the_accepted_trials_loss(prepare, pictures, dtype, bits):
    # Without a residual, each step begins where the last one's trial was.
    model, steps = prepare(dtype, 1, "all", alpha=0.0)
    _, sizes, searches = run(model, steps, pictures, 4)
    trials = [one["trials"][-1] for one in searches]
    assert all(sizes)
    # Each of four layers' outputs may be rounded; a logit is 16 times a cosine.
    found = [one["loss"] for one in searches[1:]]
    np.testing.assert_allclose(found, trials[:-1], rtol=16 * 4 * 2.0**-bits)


@pytest.mark.parametrize(
    ("scope", "replicas"), [("all", 1), slow("all", 2), slow("backbone", 2)]
)
def test_an_overflow_only_lowers_the_scale(prepare, pictures, scope, replicas):
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
    assert 0 < np.linalg.norm((vector(model, "all") - weights)[:reduced]) < 1e-2
    # And the walk goes on.
    model.trainer.updater.bfgs.inverse = inverse
    assert np.isfinite(model.train_on_batch(*pictures)["loss"])
