"""Stage 2 of networks that compute in bfloat16 or float16."""

import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.boost import projection
from plsc_tf.training import state
from tests.boost.test_reduced_step import ROUNDING, run, vector

HALF = ("bfloat16", "float16")
# One scope and count of replicas each in CI.
CASES = [
    pytest.param(
        dtype,
        scope,
        replicas,
        marks=()
        if (dtype, scope, replicas)
        in (("bfloat16", "backbone", 2), ("float16", "all", 1))
        else pytest.mark.slow,
    )
    for dtype in HALF
    for scope in ("backbone", "all")
    for replicas in (1, 2)
]


@pytest.fixture
def prepare(reduce, folder):
    """(model, its `ReducedStepper`) in half precision where the snapshots end."""

    def make(dtype, *arguments, scale=1024.0, **options):
        if dtype == "float16":
            options["compiled"] = {
                "loss_scale": lambda: plsc_tf.LossScale(
                    scale, decr_every_n_nan_or_inf=1
                )
            }
        model, steps = reduce(*arguments, dtype=dtype, **options)
        state.restore_weights(f"{folder}/step_00000009", model)
        return model, steps

    return make


@pytest.mark.parametrize(("dtype", "scope", "replicas"), CASES)
def test_steps_go_down_within_the_space(
    prepare, projections, pictures, dtype, scope, replicas
):
    model, steps = prepare(dtype, replicas, scope, plan={"alpha": 0.0})
    before = vector(model, scope)
    losses, sizes, searches = run(model, steps, pictures, 4)
    assert {v.dtype for v in model.backbone.trainable_variables} == {"float32"}
    assert any(sizes) and losses[-1] < losses[0]
    for size, search in zip(sizes, searches, strict=True):
        if size:
            bound = search["loss"] + 0.4 * size * search["slope"]
            assert search["trials"][-1] < bound
    basis = projection.Projection(projections[scope])
    basis = basis.columns(0, basis.shape[1]).astype(np.float64)
    moved = vector(model, scope) - before
    assert np.linalg.norm(moved - basis.T @ (basis @ moved)) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("scope", ["backbone", "all"])
def test_the_first_direction_is_nearly_that_of_float32(prepare, pictures, dtype, scope):
    found = []
    for precision in (dtype, "float32"):
        model, steps = prepare(precision, 1, scope)
        run(model, steps, pictures, 1)
        found.append(steps.last)
    assert found[0]["slope"] == pytest.approx(found[1]["slope"], rel=0.1)
    assert found[0]["loss"] == pytest.approx(found[1]["loss"], rel=0.02)


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float16", pytest.param("bfloat16", marks=pytest.mark.slow)],
)
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
    ("scope", "replicas"),
    [
        ("all", 2),
        pytest.param("backbone", 1, marks=pytest.mark.slow),
        pytest.param("backbone", 2, marks=pytest.mark.slow),
    ],
)
def test_an_overflow_moves_nothing_and_lowers_the_scale(
    prepare, pictures, scope, replicas
):
    model, steps = prepare("float16", replicas, scope)
    run(model, steps, pictures, 2)
    before = _everything(model)
    assert np.any(before["dim_reduce/step"]) and np.any(before["dim_reduce/residual"])
    # Gradients of this size have no float16, while every loss has.
    model.loss_scale.restore({"scale": 2.0**40, "good_steps": 0, "bad_steps": 0})
    result = model.train_on_batch(*pictures)
    assert not result["finite"] and np.isfinite(result["loss"])
    assert steps.last["trials"] == [] and steps.last["accepted"] == 0.0
    _assert_same(_everything(model), before)
    assert model.loss_scale.state()["scale"] == 2.0**39
    # A trial may overflow although the batch has not.
    model.loss_scale.restore({"scale": 64.0, "good_steps": 0, "bad_steps": 0})
    inverse = model.trainer.updater.bfgs.inverse
    model.trainer.updater.bfgs.inverse = 1e10 * np.eye(5)
    result = model.train_on_batch(*pictures)
    assert result["step_size"] == 0.0 and np.isfinite(result["loss"])
    assert not np.isfinite(steps.last["trials"]).any()
    assert model.loss_scale.state()["scale"] == 64.0
    after = _everything(model)
    np.testing.assert_array_equal(after["dim_reduce/step"], before["dim_reduce/step"])
    # Along the residual only; the optimizer goes on with what is not reduced.
    reduced = len(vector(model, scope))
    moved = (after["weights"] - before["weights"])[:reduced]
    assert 0 < np.linalg.norm(moved) < 1e-2
    # And the walk goes on.
    model.trainer.updater.bfgs.inverse = inverse
    assert np.isfinite(model.train_on_batch(*pictures)["loss"])


@pytest.mark.slow
def test_a_resumed_stage_has_its_loss_scale(prepare, pictures, tmp_path):
    model, steps = prepare("float16", 2, "all")
    model.loss_scale.restore({"scale": 2.0**40, "good_steps": 0, "bad_steps": 0})
    run(model, steps, pictures, 1)
    model.loss_scale.restore({"scale": 256.0, "good_steps": 7, "bad_steps": 0})
    run(model, steps, pictures, 2)
    state.save(str(tmp_path / "3"), model, {})
    kept, scale = _everything(model), model.loss_scale.state()
    assert scale["good_steps"] == 9
    again, own = prepare("float16", 2, "all")
    state.restore(str(tmp_path / "3"), again)
    _assert_same(_everything(again), kept)
    assert again.loss_scale.state() == scale
    assert run(again, own, pictures, 2) == run(model, steps, pictures, 2)


def _everything(model):
    found = {"weights": vector(model, "all")}
    for i, variable in enumerate(model.backbone.non_trainable_variables):
        found[f"statistics {i}"] = variable.numpy()
    for name, rows in model.trainer.updater.slots().items():
        found[name] = np.concatenate(list(rows.held().pieces(0, rows.shape[0])))
    return found


def _assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
