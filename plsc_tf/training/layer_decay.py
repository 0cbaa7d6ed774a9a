"""Weight decay of single layers, in the place of that of all weights."""

import difflib
import re

from absl import logging


def apply(model, factors):
    """Gives layers of a compiled model's network a weight decay of their own.

    Weights that the optimizer spares, such as biases by `no_weight_decay_on`, stay
    spared. Paddle: a parameter's regularizer takes the place of the optimizer's.

    Args:
        model: the compiled `Classifier`.
        factors: `{name: factor}`; a name is a regular expression for the whole name of
            a layer, and the first that fits a layer counts.

    Raises:
        ValueError: a name fits no layer that has weights.
    """
    layers = [layer for layer in model.backbone.layers if layer.weights]
    own = {}
    for name, factor in factors.items():
        matches = [layer for layer in layers if re.fullmatch(name, layer.name)]
        if not matches:
            _refuse(name, model.backbone, layers)
        for layer in matches:
            for weight in layer.weights:
                own.setdefault(id(weight), factor)
    count = model.updater.decay_apart(own)
    logging.info("weight_decay_on: %d weights have a decay of their own.", count)


def _refuse(name, network, layers):
    names = [layer.name for layer in layers]
    near = difflib.get_close_matches(name, names, n=3) or names[:3]
    raise ValueError(
        f"weight_decay_on names no layer of '{network.name}' that has weights. "
        f"Received: {name!r}. There are {len(names)}, such as {', '.join(near)}."
    )
