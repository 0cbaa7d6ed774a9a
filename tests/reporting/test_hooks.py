"""Hooks by name, and what leaving one of FastNN's out means."""

import keras
import pytest

from plsc_tf.jobs.builders import hooks
from plsc_tf.options.settings import Settings

FASTNN = ("StopAtStepHook", "ProfilerHook", "LoggingTensorHook", "CheckpointSaverHook")


class Counter(keras.callbacks.Callback):
    """A hook of a user's."""


def make_counter():
    return Counter()


def test_fastnns_hooks_are_the_default_and_need_no_callback():
    assert Settings().logging.hooks == FASTNN
    assert hooks.load_callbacks(FASTNN) == []
    settings = Settings.from_values(stop_at_step=5)
    assert hooks.turn_off_omitted(settings) is settings


@pytest.mark.parametrize(
    "path", ["test_hooks:Counter", "test_hooks.Counter", "test_hooks:make_counter"]
)
def test_own_callbacks_by_dotted_path(path):
    (made,) = hooks.load_callbacks((*FASTNN, path))
    assert type(made).__name__ == "Counter"


def test_a_hook_that_is_left_out_is_off():
    given = {"stop_at_step": 5, "profile_every_n_iters": 7, "save_checkpoints_steps": 3}
    settings = Settings.from_values(hooks=("LoggingTensorHook",), **given)
    applied = hooks.turn_off_omitted(settings).as_dict()
    for name in (*given, "save_checkpoints_epochs"):
        assert applied[name] == 0, name


def with_arguments(limit):
    """Not what a hook may be."""


@pytest.mark.parametrize(
    ("path", "error", "words"),
    [
        ("StopAtStepHok", ValueError, "Did you mean 'StopAtStepHook'"),
        ("no_such_module:Hook", ImportError, "no_such_module"),
        ("test_hooks:Countr", ImportError, "Did you mean 'test_hooks:Counter'"),
        ("test_hooks:with_arguments", TypeError, "argument: 'limit'"),
        ("test_hooks:FASTNN", ValueError, "keras.callbacks.Callback"),
    ],
)
def test_wrong_hooks_are_explained(path, error, words):
    with pytest.raises(error, match=words):
        hooks.load_callbacks((path,))
