"""The user's own networks: Keras models, `build_network` classes and dotted paths."""

import inspect
from functools import partial

import keras
import numpy as np
from absl import logging

from plsc_tf import dotted_paths, private_apis
from plsc_tf.backbones.arguments import checked_image_shape
from plsc_tf.requirements import require


class BaseModel:
    """Base class for networks in PLSC's form.

    A subclass implements `build_network` with Keras layers and operations. The library
    adds the head. Example:

        class Tiny(BaseModel):
            def build_network(self, input, label, is_train=True):
                x = keras.layers.Conv2D(32, 3, strides=4, activation="relu")(input)
                x = keras.layers.GlobalAveragePooling2D()(x)
                return keras.layers.Dense(128)(x)
    """

    def build_network(self, input, label, is_train=True):
        """Builds the network once, on symbolic tensors.

        Args:
            input: normalized symbolic float32 images, `[N, height, width, channels]`;
                in PLSC, `[N, channels, height, width]`.
            label: always None, because the network does not depend on labels.
            is_train: always None, because the same network serves training and
                inference, and Keras layers detect which one is running. You can pass it
                on as `training` or ignore it, but do not branch on it.

        Returns:
            Symbolic embeddings, `[N, embedding_size]`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must implement build_network(self, input, label, "
            "is_train), which returns the embeddings."
        )

    def to_keras(self, image_shape=(112, 112, 3), embedding_size=None) -> keras.Model:
        """Builds the network as a Keras model and checks it like `from_user`.

        Args:
            image_shape: (height, width, channels) in pixels.
            embedding_size: required embedding size; None accepts any.

        Raises:
            ValueError: `build_network` does not return `[N, embedding_size]`
                embeddings.
        """
        image = keras.Input(checked_image_shape(image_shape), name="image")
        name = type(self).__name__
        embedding = self.build_network(image, None, None)
        method = f"{name}.build_network"
        embedding = _checked_embedding(embedding, embedding_size, method)
        return keras.Model(image, embedding, name=name)


def from_user(
    model, *, embedding_size: int | None = None, image_shape=(112, 112, 3)
) -> keras.Model:
    """Checks a user's network and returns it as a Keras model.

    A warning is logged if the network scales the pixels itself.

    Args:
        model: a Keras model or layer; a `BaseModel` object or class; a function or
            class that creates one of these, called with embedding_size (or emb_dim) and
            image_shape if its signature has them; or the dotted path of any of these,
            as in "my_package.networks.Tiny".
        embedding_size: required embedding size; None accepts the model's.
        image_shape: (height, width, channels) of the images, in pixels.

    Returns:
        A Keras model from `[N, height, width, channels]` to float32
        `[N, embedding_size]`: `model` itself if its shapes and dtype already match,
        otherwise a model that shares its weights.

    Raises:
        ImportError: the dotted path does not exist.
        TypeError: `model` is none of the above.
        ValueError: the input or output does not have the requested shape.
    """
    image_shape = checked_image_shape(image_shape)
    if isinstance(model, str) and all(dotted_paths.split(model)):
        model = dotted_paths.load(model, "network")
    if callable(model) and not isinstance(model, keras.layers.Layer):
        model = _make(model, embedding_size, image_shape)
    if isinstance(model, BaseModel):
        network = model.to_keras(image_shape, embedding_size)
    elif isinstance(model, keras.layers.Layer):
        network = _checked_model(model, embedding_size, image_shape)
    else:
        raise TypeError(
            "A network must be a keras.Model, a plsc_tf.backbones.BaseModel, a "
            "function that returns one of these, or the dotted path of one. "
            f"Received: {model!r} of type {type(model).__name__}."
        )
    _warn_of_scaling(network)
    return network


def _make(factory, embedding_size, image_shape):
    """Calls a function or class with the arguments that its signature contains."""
    offered = {"image_shape": image_shape}
    if embedding_size is not None:
        offered.update(embedding_size=embedding_size, emb_dim=embedding_size)
    # Inspect a class's __init__, because __new__ of Keras layers accepts anything.
    target = partial(factory.__init__, None) if isinstance(factory, type) else factory
    parameters = inspect.signature(target).parameters
    return factory(**{k: v for k, v in offered.items() if k in parameters})


def _checked_model(model, embedding_size, image_shape) -> keras.Model:
    name = f"The network {model.name!r}"
    inputs, own_shape = getattr(model, "inputs", None), None
    if inputs is not None:  # the model was built with known inputs
        own_shape = tuple(inputs[0].shape)
        sizes = zip(own_shape[1:], image_shape, strict=False)
        fits = all(own in (None, size) for own, size in sizes)
        good = len(inputs) == 1 and len(own_shape) == 4 and fits
        rule = f"{name} must have one input of the image_shape {(None, *image_shape)}"
        require(good, rule, inputs=len(inputs), shape=own_shape)
    image = keras.Input(image_shape, name="image")
    output = model(image)
    embedding = _checked_embedding(output, embedding_size, name)
    # Wrap models with an unspecified image size, because callers read the size, and
    # models with a fixed batch size, because they accept no other.
    if own_shape == (None, *image_shape) and embedding is output:
        return model
    return keras.Model(image, embedding, name=model.name)


def _warn_of_scaling(network):
    """Warns about a layer that scales the already normalized pixels again."""
    # `layers_inside` yields the layers from last to first.
    for layer in reversed(list(private_apis.layers_inside(network))):
        rescales = isinstance(layer, keras.layers.Rescaling)
        if rescales and np.max(np.abs(layer.scale)) >= 1:
            return  # this layer undoes the normalization
        if rescales or isinstance(layer, keras.layers.Normalization):
            logging.warning(
                f"The network '{network.name}' scales its images in layer "
                f"'{layer.name}' ({type(layer).__name__}), but they are already scaled "
                "to (pixel - 127.5) / 128. Remove the layer (in "
                "keras.applications: include_preprocessing=False), or put "
                "keras.layers.Rescaling(128.0, 127.5) before it."
            )
            return


def _checked_embedding(embedding, embedding_size, name: str):
    """Checks an `[N, embedding_size]` tensor; casts half precision to float32.

    Error messages start with `name`.
    """
    shape = tuple(getattr(embedding, "shape", ()))
    symbolic = keras.utils.is_keras_tensor(embedding)
    good, kind = len(shape) == 2 and shape[1] is not None, type(embedding).__name__
    rule = f"{name} must return one symbolic tensor [N, embedding_size]"
    advice = "End the network with a pooling or Flatten layer and a Dense layer"
    require(symbolic and good, rule, advice, type=kind, shape=shape)
    rule = f"{name} must return embeddings of size {embedding_size}"
    advice = f"Change its last layer, or set embedding_size={shape[1]}"
    require(embedding_size in (None, shape[1]), rule, advice, size=shape[1])
    if embedding.dtype not in ("float16", "bfloat16"):
        return embedding
    return keras.layers.Activation("linear", dtype="float32", name="float32")(embedding)
