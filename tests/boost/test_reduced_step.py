"""Steps of stage 2: what facts.md 2.7 promises."""

import keras
import numpy as np
import pytest

import plsc_tf
from plsc_tf.heads.heads import DenseHead, ShardedHead
from plsc_tf.training import state
from tests.marks import slow
from tests.training.checkpointed import snapshot

STEPS = 6
# Two graphs that compute the loss of one point, or the same graph on another number of
# replicas, round differently. A logit is 16 times a cosine, behind sums of 27 (a kernel
# of 3 x 3 x 3), 392 (7 x 7 x 8 values into the embedding) and 8 products, with two
# norms; each of these terms is rounded to 2^-24. The loss is -log p, and its derivative
# by a logit, 1 - p, is less than the loss: so its error, relative, is less than that of
# two logits. A worst case: what is seen is a hundredth of it.
ROUNDING = 2 * 16 * (27 + 392 + 8 + 14) * 2.0**-24


def vector(model, scope):
    """The reduced weights, as the projection's columns are ordered."""
    parts = [np.ravel(v.numpy()) for v in model.backbone.trainable_variables]
    if scope == "all":
        arrays = model.head.arrays().values()
        parts += [np.ravel(rows.read(0, rows.shape[0])) for rows in arrays]
    return np.concatenate(parts).astype(np.float64)


def run(model, steps, pictures, count=STEPS):
    """So many steps: (losses, step sizes, line searches)."""
    results, searches = [], []
    for _ in range(count):
        results.append(model.train_on_batch(*pictures))
        searches.append(dict(steps.last))
    losses = [result["loss"] for result in results]
    return losses, [result["step_size"] for result in results], searches


def assert_clear(searches):
    """No accepted or refused trial is so near its bound that rounding decides."""
    for search in searches:
        for m, loss in enumerate(search["trials"]):
            bound = search["loss"] + 0.4 * 0.55**m * search["slope"]
            assert abs(loss - bound) > 4 * ROUNDING * search["loss"]


@pytest.fixture(scope="module")
def reduced_once(reduce, tmp_path_factory):
    """(a stage 2 of all weights on two replicas, a checkpoint of its start)."""
    model, steps = reduce(2, "all")
    path = str(tmp_path_factory.mktemp("start") / "0")
    state.save(path, model, {})
    return model, steps, path


@pytest.fixture
def on_two(reduced_once):
    """The stage 2 of `reduced_once` at its start: its graphs are made once."""
    model, steps, path = reduced_once
    state.restore(path, model)
    return model, steps


@pytest.fixture
def start(folder):
    """Puts a model where the snapshots end."""

    def load(model):
        state.restore_weights(f"{folder}/step_00000009", model)

    return load


@pytest.mark.parametrize(
    ("scope", "others"),
    [
        ("all", [(2, ShardedHead), (1, DenseHead)]),
        slow("all", [(4, ShardedHead)]),
        slow("backbone", [(2, ShardedHead), (4, ShardedHead)]),
    ],
)
def test_any_replicas_and_head_take_one_path(reduce, on_two, pictures, scope, others):
    def path(replicas, head):
        if (scope, replicas) == ("all", 2):
            model, steps = on_two
        else:
            model, steps = reduce(replicas, scope, head=head)
        losses, sizes, searches = run(model, steps, pictures)
        assert_clear(searches)
        return losses, sizes, vector(model, "all")

    losses, sizes, end = path(1, ShardedHead)
    assert losses[-1] < losses[0] and any(sizes)
    for found in (path(*other) for other in others):
        assert found[1] == sizes
        np.testing.assert_allclose(found[0], losses, rtol=2e-3)
        np.testing.assert_allclose(found[2], end, atol=2e-5)


def test_the_accepted_point_is_lower_by_armijos_bound(reduce, pictures, projections):
    model, steps = reduce(scope="all", alpha=0.0)
    before = vector(model, "all")
    _, sizes, searches = run(model, steps, pictures)
    # Without a residual no weight leaves the space.
    moved = vector(model, "all") - before
    basis = np.load(projections["all"]).astype(np.float64)
    assert np.linalg.norm(moved) > 1e-3
    assert np.linalg.norm(moved - basis.T @ (basis @ moved)) < 2e-6
    for i, (size, search) in enumerate(zip(sizes, searches, strict=True)):
        assert search["slope"] < 0
        accepted = search["loss"] + 0.4 * size * search["slope"]
        tried = search["trials"]
        assert size == 0.55 ** (len(tried) - 1)
        assert tried[-1] < accepted
        for m, loss in enumerate(tried[:-1]):
            assert not loss < search["loss"] + 0.4 * 0.55**m * search["slope"]
        if i:  # without a residual the next step begins where the trial was
            trial = searches[i - 1]["trials"][-1]
            assert search["loss"] == pytest.approx(trial, rel=ROUNDING)


def test_a_step_follows_the_equations(reduce, make_model, start, pictures, projections):
    # The loss scale is divided out first.
    model, steps = reduce(compiled={"loss_scale": lambda: plsc_tf.LossScale(1024.0)})
    plain = gradient(make_model, start, pictures)
    basis = np.load(projections["backbone"]).astype(np.float64)
    before = vector(model, "backbone")
    (size,) = run(model, steps, pictures, 1)[1]
    projected = basis @ plain
    residual = plain - basis.T @ projected
    expected = before - size * (basis.T @ projected) - 0.001 * residual
    assert size > 0
    np.testing.assert_allclose(vector(model, "backbone"), expected, atol=1e-6)
    assert steps.last["slope"] == pytest.approx(-projected @ projected, rel=1e-4)


def gradient(make_model, start, pictures):
    """The batch's, as the ordinary step with rate 1 and no momentum goes along it."""
    model = make_model()
    with model.strategy.scope():
        model.compile(keras.optimizers.SGD(1.0))
    start(model)
    before = vector(model, "backbone")
    model.train_on_batch(*pictures)
    return before - vector(model, "backbone")


def test_trials_share_dropout_and_keep_statistics(reduce, make_model, start, pictures):
    # The bias before a batch norm changes nothing: all trials have the batch's loss.
    model, steps = reduce(dropout=0.5)
    assert model.backbone.trainable_variables[1].path.endswith("bias")
    updater = model.trainer.updater
    first = int(np.prod(model.backbone.trainable_variables[0].shape))
    tile = updater.space._basis[""].tiles[0][0]
    basis = np.zeros(tile.shape, np.float32)
    basis[first : first + 5] = np.eye(5)
    tile.assign(basis)
    updater.bfgs.inverse = 1e6 * np.eye(5)  # rounding is what the gradient is
    model.train_on_batch(*pictures)
    search = steps.last
    np.testing.assert_allclose(search["trials"], search["loss"], rtol=1e-4)
    # The statistics are those of one pass: 0.99 of the old and 0.01 of the batch's.
    reference = make_model(dropout=0.5, rate=0.02)
    start(reference)
    reference.train_on_batch(*pictures)
    networks = model.backbone, reference.backbone
    pairs = zip(*(one.non_trainable_variables for one in networks), strict=True)
    # Random states too: one draw. Statistics move by 0.01 of those of the batch, which
    # are means of 24 x 7 x 7 sums of 27 products of up to 1: 1203 roundings.
    atol = 0.01 * 1203 * 2.0**-24
    for found, expected in pairs:
        found, expected = found.numpy(), expected.numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=atol)


def test_a_trial_that_is_not_finite_is_not_accepted(reduce, pictures):
    model, steps = reduce(alpha=0.0)
    before = vector(model, "backbone")
    # Of the second one's length the direction itself is not finite in float32.
    for factor, trials in ((1e38, 8), (1e60, 0)):
        model.trainer.updater.bfgs.inverse = factor * np.eye(5)
        size = run(model, steps, pictures, 1)[1]
        assert size == [0.0] and len(steps.last["trials"]) == trials
        assert not np.isfinite(steps.last["trials"]).any()
        np.testing.assert_array_equal(vector(model, "backbone"), before)
        np.testing.assert_array_equal(model.trainer.updater.bfgs.step, np.zeros(5))


def test_a_step_that_is_not_finite_changes_nothing(on_two, pictures):
    model, steps = on_two
    run(model, steps, pictures, 2)
    bias = model.backbone.trainable_variables[1]
    bias.assign(np.full(bias.shape, np.inf))
    before, inverse = snapshot(model), model.trainer.updater.bfgs.inverse.copy()
    with pytest.raises(FloatingPointError, match="step did not change the weights"):
        model.train_on_batch(*pictures)
    np.testing.assert_equal(snapshot(model), before)
    np.testing.assert_array_equal(model.trainer.updater.bfgs.inverse, inverse)
    assert np.isfinite(before["dim_reduce/residual"]).all()


def test_a_resumed_stage_goes_on_bit_for_bit(reduce, on_two, pictures, tmp_path):
    model, steps = on_two
    run(model, steps, pictures, 3)
    state.save(str(tmp_path / "3"), model, {})
    kept = carried(model)
    assert np.any(kept["dim_reduce/step"]) and np.any(kept["dim_reduce/residual"])
    following = run(model, steps, pictures, 2)
    for again, own in (on_two, reduce(1, "all")):
        state.restore(str(tmp_path / "3"), again)
        for name, values in carried(again).items():
            np.testing.assert_array_equal(values, kept[name], err_msg=name)
        found = run(again, own, pictures, 2)
        if again is model:  # which went on by two steps before it was restored
            assert found == following
        else:
            np.testing.assert_allclose(found[0], following[0], rtol=1e-3)


def carried(model):
    """What a checkpoint keeps of stage 2."""
    slots = model.trainer.updater.slots().items()
    return {name: rows.read(0, rows.shape[0]) for name, rows in slots}
