"""The outputs of the layers of a network."""

import contextlib

from plsc_tf import private_apis


@contextlib.contextmanager
def watched(network, see):
    """Calls `see(layer, outputs)` on every layer's call, in the order of their returns.

    Args:
        network: the Keras model; it is as before when the block ends.
        see: the function.
    """
    before = []

    def wrapped(layer, call):
        def call_and_see(*args, **kwargs):
            outputs = call(*args, **kwargs)
            see(layer, outputs)
            return outputs

        return call_and_see

    try:
        for layer in private_apis.layers_inside(network, include_self=True):
            before.append((layer, vars(layer).get("call")))
            layer.call = wrapped(layer, layer.call)
        yield
    finally:
        for layer, call in before:
            del layer.call
            if call is not None:
                layer.call = call
