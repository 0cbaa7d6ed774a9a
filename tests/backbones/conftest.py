"""Networks without weights, for what can be read off a network's structure."""

import functools
import math

import pytest


def build(name, **arguments):
    import keras

    from plsc_tf import backbones

    with keras.StatelessScope(initialize_variables=False):
        return backbones.build(name, **arguments)


def forget():
    """Empties Keras's list of variables that are still to be initialized."""
    import keras

    keras.utils.clear_session()


@pytest.fixture
def sketch():
    """A `build` whose networks have layers and shapes, but no memory for weights."""
    yield build
    forget()


@pytest.fixture(scope="module")
def sketches():
    """The same, for modules that build nothing else; builds each network once."""
    yield functools.cache(build)
    forget()


@pytest.fixture
def counts(sketches):
    """A function: trainable parameters, with logits of some classes, and the others."""

    def count(name, classes=0, **arguments):
        network = sketches(name, **arguments)
        kinds = (network.trainable_weights, network.non_trainable_weights)
        trained, others = (sum(math.prod(w.shape) for w in kind) for kind in kinds)
        return trained + (network.output_shape[1] + 1) * classes, others

    return count
