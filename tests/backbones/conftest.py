"""Networks without weights, for what can be read off a network's structure."""

import math

import pytest


@pytest.fixture
def sketch():
    """A `build` whose networks have layers and shapes, but no memory for weights."""
    import keras

    from plsc_tf import backbones

    def build(name, **arguments):
        with keras.StatelessScope(initialize_variables=False):
            return backbones.build(name, **arguments)

    yield build
    # Keras keeps a list of variables to initialise later; nobody wants these.
    keras.utils.clear_session()


@pytest.fixture
def counts(sketch):
    """A function: trainable parameters, with logits of some classes, and the others."""

    def count(name, classes=0, **arguments):
        network = sketch(name, **arguments)
        kinds = (network.trainable_weights, network.non_trainable_weights)
        trained, others = (sum(math.prod(w.shape) for w in kind) for kind in kinds)
        return trained + (network.output_shape[1] + 1) * classes, others

    return count
