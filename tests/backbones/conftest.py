"""Networks without weights, for what can be read off a network's structure."""

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
