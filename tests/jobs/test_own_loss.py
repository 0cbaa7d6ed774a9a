"""Tests a user's loss, given by its dotted path, and `plsc_tf.testing.check_loss`."""

import dataclasses

import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.jobs import train
from plsc_tf.jobs.builders import heads
from plsc_tf.options.settings import Settings
from plsc_tf.testing import check_loss
from tests.jobs.tiny_run import settings
from tests.marks import slow

BUILT_IN = [*heads.LOSSES.values(), plsc_tf.InterclassFilter(plsc_tf.ARCFACE, 0.4)]


@dataclasses.dataclass(frozen=True)
class Cosine(plsc_tf.MarginLoss):
    """CosFace with m = 0.35, as a user would write it."""

    m: float = 0.35

    def target(self, cosine, norms, state):
        return plsc_tf.Target(cosine - self.m, tf.ones_like(cosine))


class WrongSlope(Cosine):
    def target(self, cosine, norms, state):
        return plsc_tf.Target(cosine**2, tf.ones_like(cosine))


class TooLarge(Cosine):
    def others(self, cosine, target, state):
        return 2 * cosine, tf.fill(cosine.shape, tf.constant(2.0, cosine.dtype))


class ForgetsItsState(Cosine):
    def initial_state(self):
        return {"mean": 0.0}

    def next_state(self, cosine, norms, weights, state):
        return {}


@pytest.mark.parametrize("loss", [*BUILT_IN, Cosine()], ids=str)
def test_the_losses_of_the_library_and_one_of_ones_own_pass(loss):
    check_loss(loss)


@pytest.mark.parametrize(
    "loss, words",
    [
        (WrongSlope(), "target's slope differs from .* at 1[0-9] of 16 points"),
        (TooLarge(), "below a result of loss.others.*largest=1"),
        (ForgetsItsState(), r"the names of initial_state, \['mean'\]"),
    ],
)
def test_a_wrong_loss_is_found(loss, words):
    with pytest.raises(ValueError, match=words):
        check_loss(loss)
    if isinstance(loss, WrongSlope):
        check_loss(loss, exact=False)


@pytest.mark.parametrize(("sharded", "rate"), [("dist_", 0.5), slow("", 1.0)])
def test_a_run_trains_with_it(tmp_path, sharded, rate):
    outcomes, options = {}, {"sample_rate": rate, "num_epochs": 1}
    for name, path in {"own": f"{__name__}.Cosine", "ours": "cosface"}.items():
        asked = settings(tmp_path / name, loss_type=sharded + path, **options)
        _, outcomes[name] = train.train(asked)
    assert outcomes["own"]["loss_type"] == f"{sharded}{__name__}.Cosine"
    assert outcomes["own"]["loss"] == outcomes["ours"]["loss"]


@pytest.mark.parametrize(
    "path, error, words",
    [
        ("no_such.Loss", ImportError, "cannot find the module 'no_such'"),
        (f"{__name__}.Cosin", ImportError, "Did you mean .*Cosine"),
        (f"{__name__}.BUILT_IN", TypeError, "A loss must be a plsc_tf.MarginLoss"),
    ],
)
def test_a_wrong_path_is_explained(path, error, words):
    with pytest.raises(error, match=words):
        heads.make_loss(Settings.from_values(loss_type=path).head)
