"""Checks that users can run in tests of their own components."""

import numpy as np
import tensorflow as tf

from plsc_tf.heads.heads import DenseHead, ShardedHead
from plsc_tf.heads.margins import MarginLoss
from plsc_tf.requirements import require

CLASSES, EMBEDDING, BATCH = 11, 6, 16
_STEP = 1e-6  # step size of the differences
_TOLERANCE = 1e-4
_KINKS = 0.05  # share of the points where a difference may cross a kink


def check_loss(loss, *, exact=True, seed=0):
    """Checks that a loss meets the requirements of the heads.

    Tensors must have the right shapes and be finite, derivatives must match the values,
    and the state must keep its names. A sharded head with several tiles must give the
    same losses and gradients as a replicated one.

    Args:
        loss: a `plsc_tf.MarginLoss`.
        exact: False for a loss whose `slope` is deliberately not the derivative, such
            as `Margins(gradient="straight_through")`.
        seed: random seed for cosines and norms.

    Raises:
        TypeError: `loss` is not a `MarginLoss`.
        ValueError: a check failed; the message describes the problem.
    """
    if not isinstance(loss, MarginLoss):
        kind = type(loss).__name__
        raise TypeError(f"Derive the loss from plsc_tf.MarginLoss. Received: {kind}.")
    rng = np.random.default_rng(seed)
    cosine = tf.constant(rng.uniform(-0.95, 0.95, BATCH))
    norms = tf.constant(rng.uniform(5.0, 50.0, BATCH))
    others = tf.constant(rng.uniform(-0.95, 0.95, (CLASSES, BATCH)))
    state = _state(loss, cosine, norms)
    target = loss.target(cosine, norms, state)
    _check_shape("target's value", target.value, cosine)
    _check_shape("target's slope", target.slope, cosine)
    value, slope = loss.others(others, target, state)
    _check_shape("others' value", value, others)
    returned = float(tf.reduce_max(value))
    rule = f"loss.largest must not be below a result of loss.others(), {returned:.6g}"
    require(returned <= loss.largest + 1e-9, rule, largest=loss.largest)
    if exact:
        _check_derivatives(loss, cosine, norms, state, target)
        slope = tf.ones_like(others) if slope is None else slope
        what = "others' derivative by the cosine"
        _check_slope(what, slope, lambda c: loss.others(c, target, state)[0], others)
    _check_sharded(loss, rng)


def _state(loss, cosine, norms):
    """Returns the state after a batch in which the last example is padding."""
    initial, dtype = loss.initial_state(), cosine.dtype
    first = {name: tf.constant(number, dtype) for name, number in initial.items()}
    weights = tf.constant([1.0] * (BATCH - 1) + [0.0], dtype)
    state = loss.next_state(cosine, norms, weights, first)
    rule = f"next_state must return the names of initial_state, {sorted(first)}"
    require(set(state) == set(first), rule, names=sorted(state))
    for name, number in state.items():
        if number.shape.rank or not np.isfinite(number):
            raise ValueError(f"State {name!r} must be a finite scalar, not {number}.")
    return state


def _check_derivatives(loss, cosine, norms, state, target):
    if (target.penalty is None) != (target.penalty_slope is None):
        raise ValueError("target must return both penalty and penalty_slope, or none.")
    for name, function, x in (
        ("slope", lambda c: loss.target(c, norms, state).value, cosine),
        ("norm_slope", lambda n: loss.target(cosine, n, state).value, norms),
        ("penalty_slope", lambda n: loss.target(cosine, n, state).penalty, norms),
    ):
        if getattr(target, name) is not None:
            _check_slope(f"target's {name}", getattr(target, name), function, x)


def _check_slope(what, slope, function, x):
    """Compares derivatives with central differences of an elementwise function."""
    high, low = function(x + _STEP), function(x - _STEP)
    _compare(f"{what} differs from the numeric one", slope, (high - low) / (2 * _STEP))


def _check_shape(what, tensor, like):
    shape, dtype = tuple(tensor.shape), tensor.dtype.name
    rule = f"The {what} must have shape {tuple(like.shape)} and dtype {like.dtype.name}"
    fits = tensor.shape == like.shape and tensor.dtype == like.dtype
    require(fits, rule, shape=shape, dtype=dtype)
    if not np.isfinite(tensor).all():
        raise ValueError(f"The {what} is not finite for cosines in (-0.95, 0.95).")


def _compare(what, received, expected, kinks=_KINKS):
    received, expected = np.asarray(received), np.asarray(expected)
    wrong = np.abs(received - expected) > _TOLERANCE * np.maximum(1, np.abs(expected))
    if wrong.mean() > kinks:
        worst = np.unravel_index(np.abs(received - expected).argmax(), expected.shape)
        raise ValueError(
            f"The {what} at {int(wrong.sum())} of {wrong.size} points. "
            f"Expected: {expected[worst]:.6g}. Received: {received[worst]:.6g}."
        )


def _check_sharded(loss, rng):
    """Compares a head that processes its classes in tiles with a replicated one."""
    weight = rng.normal(size=(CLASSES, EMBEDDING)).astype(np.float32)
    embeddings = tf.constant(rng.normal(size=(BATCH, EMBEDDING)), tf.float32)
    labels = tf.constant(rng.integers(0, CLASSES, BATCH))
    sample_weights = tf.fill([BATCH], 1.0 / BATCH)

    def run(kind, **options):
        """Returns losses and embedding gradients."""
        head = kind(CLASSES, loss=loss, scale=16.0, **options)
        head.build(EMBEDDING, tf.distribute.get_strategy())
        head.set_weights_from_numpy(weight)

        def step():
            outcome = head.loss_and_gradients(embeddings, labels, sample_weights)
            return outcome.losses, outcome.embedding_gradients

        return tf.function(step, autograph=False)()

    whole, split = run(DenseHead), run(ShardedHead, tile_rows=4)
    for i, name in enumerate(("losses", "gradients of the embeddings")):
        _compare(f"{name} of a sharded head differ", split[i], whole[i], kinks=0.0)
