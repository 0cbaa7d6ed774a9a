"""Runs the forward pass of a model's networks compiled, in blocks, or with substitutes.

TensorFlow differentiates whatever this module runs, so that the backward pass is
compiled, too, or computes the activations of a block again.
"""

import functools
import re
from typing import Any

import keras
import tensorflow as tf
from absl import logging

from plsc_tf import graphs, private_apis
from plsc_tf.backbones import recompute, substitutes
from plsc_tf.backbones.stateless import with_values
from plsc_tf.parallel.strategy import device_kind
from plsc_tf.requirements import require_one_of
from plsc_tf.training.circular import Classifier
from plsc_tf.training.two_passes import TwoPasses

# The results of `plain`.
Outcome = tuple[tf.Tensor, list[tf.Tensor], tf.Tensor | None]
_UNSUPPORTED = re.compile(r"No registered '(\w+)'")


def plain(
    model: Classifier, images: tf.Tensor, labels: tf.Tensor, sample_weights: tf.Tensor
) -> Outcome:
    """Runs the networks' forward pass in training mode, under the caller's tape.

    Args:
        model: the `Classifier`.
        images: `[b, h, w, 3]` in 0 ... 255.
        labels: int64 `[b]`, for the auxiliary logits.
        sample_weights: `[b]` factor of each example's loss in the objective.

    Returns:
        (embeddings `[b, emb]`, list of the layers' scalar penalties, loss of the
        auxiliary logits or None).
    """
    batch = images, labels, sample_weights
    network = functools.partial(_network(model), training=True)
    embeddings, extra = _outputs(model, batch, network)
    dtype = keras.config.floatx()
    return embeddings, [tf.cast(p, dtype) for p in model.backbone.losses], extra


def _network(model):
    """Returns the backbone, or a model that also returns the auxiliary logits."""
    return model.backbone if model.auxiliary is None else model.auxiliary.network


def _outputs(model, batch, network):
    """Returns the embeddings and the loss of the auxiliary logits.

    Args:
        batch: images, labels and sample weights.
        network: function that computes what `_network(model)` computes in training.
    """
    images, labels, sample_weights = batch
    outputs = network(model.normalize(images))
    if model.auxiliary is None:
        return outputs, None
    embeddings, logits = outputs
    return embeddings, model.auxiliary.loss(logits, labels, sample_weights)


def make(model: Classifier, jit_compile: Any, recompute: str) -> "Forward | None":
    """Creates the `Forward` of a model, or None if Keras's calls do the same.

    Args:
        model: the `Classifier`.
        jit_compile: whether XLA compiles the networks' passes: True, False, or "auto"
            for True where every replica is a GPU.
        recompute: "blocks" to compute the activations of each block again in the
            backward pass, or "none".

    Raises:
        ValueError: an argument is none of these, or the network has no blocks.
    """
    require_one_of((True, False, "auto"), jit_compile=jit_compile)
    require_one_of(("none", "blocks"), recompute=recompute)
    gpus = device_kind(model.strategy) == "GPU"
    compiled = is_compiled(model.strategy, jit_compile)
    if not (compiled or gpus or recompute == "blocks" or synchronized(model)):
        return None
    return Forward(model, compiled, recompute == "blocks", fused=gpus)


def is_compiled(strategy: tf.distribute.Strategy, jit_compile: bool | str) -> bool:
    """Returns whether XLA compiles; `jit_compile` is that of `make`."""
    on_gpus = device_kind(strategy) == "GPU"
    return on_gpus if jit_compile == "auto" else bool(jit_compile)


def synchronized(model: Classifier) -> str | None:
    """Returns the name of a layer that sends messages between replicas, or None."""
    if model.strategy.num_replicas_in_sync == 1:
        return None
    layers = (x for n in model.networks() for x in private_apis.layers_inside(n))
    return next((x.name for x in layers if getattr(x, "synchronized", False)), None)


class Forward:
    """Computes what `Classifier.forward` computes, in another way.

    The networks run as a function of the values of all weights and states that returns
    the new states and has no side effects. If XLA shall compile it but cannot, a
    warning says why, and the networks run uncompiled.

    Args:
        model: the `Classifier`.
        compiled: whether XLA compiles the function.
        in_blocks: whether the backward pass runs each block of the network again.
        fused: see `substitutes.substitute`; always true if XLA compiles.
    """

    def __init__(self, model: Classifier, compiled: bool, in_blocks: bool, fused: bool):
        self._model, self._in_blocks, self._fused = model, in_blocks, fused
        self._function: Any = None
        self._wants_xla = compiled
        self._networks = functools.cache(self._substituted)
        self._networks(compiled)

    def __call__(
        self, images: tf.Tensor, labels: tf.Tensor, sample_weights: tf.Tensor
    ) -> Outcome:
        """Takes the arguments of `Classifier.forward` and returns the same."""
        variables = self._variables()
        values = [tf.convert_to_tensor(v.value) for v in variables]
        tensors = *values, images, labels, sample_weights
        if self._function is None:
            compiled = self._wants_xla and self._can_be_compiled(tensors)
            self._function = functools.partial(self._with_values, compiled)
            if compiled:
                self._function = TwoPasses(self._function, tensors, len(variables))
        outcome, states = self._function(*tensors)
        for variable, state in zip(variables, states, strict=True):
            if state is not None:
                variable.assign(state)
        return outcome

    def _variables(self):
        return [v for network in self._model.networks() for v in network.variables]

    def _substituted(self, compiled):
        """Returns a function that computes what the network computes in training."""
        network = _network(self._model)
        substitute = functools.partial(substitutes.substitute, compiled or self._fused)
        if self._in_blocks:
            return recompute.InBlocks(network, substitute, compiled)
        own = private_apis.Substituted(network.inputs, network.outputs, substitute)
        return functools.partial(own, training=True)

    def _with_values(self, compiled, *tensors):
        """Runs the networks with these values of `_variables()`.

        Returns:
            (what `Classifier.forward` returns, for each of `_variables()` its new
            value, or None if it did not change).
        """
        model, variables = self._model, self._variables()
        values, batch = tensors[: len(variables)], tensors[len(variables) :]
        network = self._networks(compiled)
        (embeddings, extra), states, losses = with_values(
            lambda: _outputs(model, batch, network), variables, values
        )
        # Outside of that scope, these are only the penalties on weights.
        penalties, _, _ = with_values(lambda: model.backbone.losses, variables, values)
        losses = [tf.cast(x, keras.config.floatx()) for x in (*losses, *penalties)]
        return (embeddings, losses, extra), states

    def _can_be_compiled(self, tensors):
        """Returns whether XLA can compile both passes; does not run them."""

        def both_passes(*tensors):
            with tf.GradientTape() as tape:
                tape.watch([t for t in tensors if t.dtype.is_floating])
                outcome, states = self._with_values(True, *tensors)
            targets = [t for t in tf.nest.flatten(outcome) if t is not None]
            return tape.gradient(targets, tensors), states

        problem, layer = None, synchronized(self._model)
        if layer is not None:
            problem = f"layer {layer} sends messages between replicas"
        else:
            try:
                with tf.init_scope():
                    function = graphs.with_xla(both_passes)
                    specs = [tf.TensorSpec(t.shape, t.dtype) for t in tensors]
                    function.experimental_get_compiler_ir(*specs)(stage="hlo")
            except Exception as error:  # noqa: BLE001 - layers may be the user's
                unknown = sorted(set(_UNSUPPORTED.findall(str(error))))
                problem = f"it does not support {', '.join(unknown)}"
                if not unknown:
                    problem = str(error).partition("\n")[0] or repr(error)
        if problem is not None:
            logging.warning(
                f"XLA cannot compile the network '{self._model.backbone.name}': "
                f"{problem}. It runs uncompiled (jit_compile)."
            )
        return problem is None
