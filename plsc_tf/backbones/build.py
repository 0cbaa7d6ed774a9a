"""Builds the library's networks by name."""

import inspect
import re
from functools import partial

import keras

from plsc_tf.backbones import arguments, faces
from plsc_tf.backbones.precision import Precision, apply
from plsc_tf.backbones.vit import SIZES as TRANSFORMERS, vit
from plsc_tf.backbones.zoo.catalog import EMBEDDING_STYLE, ENTRIES, Entry
from plsc_tf.requirements import did_you_mean, require

BUILDERS = {
    "resnet10": faces.small_resnet,
    **{f"resnet{depth}": partial(faces.resnet, depth) for depth in faces.PLSC_DEPTHS},
    "iresnet": faces.iresnet,
    "iresnet10": partial(faces.iresnet, depths=(1, 1, 1, 1), width=32),
    "iresnet18": partial(faces.iresnet, depths=(2, 2, 2, 2)),
    "iresnet34": partial(faces.iresnet, depths=(3, 4, 6, 3)),
    "iresnet50": partial(faces.iresnet, depths=(3, 4, 14, 3)),
    "iresnet100": partial(faces.iresnet, depths=(3, 13, 30, 3)),
    "iresnet200": partial(faces.iresnet, depths=(6, 26, 60, 6)),
    "mobilefacenet": partial(faces.mobilefacenet, False),
    "mbf": partial(faces.mobilefacenet, True),
    **{name: partial(vit, *sizes) for name, sizes in TRANSFORMERS.items()},
    **{name: entry.build for name, entry in ENTRIES.items()},
}
# {name without underscores: name}, to look up names spelled differently.
PLAIN = {name.replace("_", ""): name for name in BUILDERS}
# By default, face networks map 112 x 112 pixels to 512 numbers.
FACE_EMBEDDING_SIZE = 512
FACE_IMAGE_SIZE = 112
# With Slim's 0.9997, the statistics of the zoo's batch normalizations take tens of
# thousands of steps to match the data.
ZOO_MOMENTUM = 0.99
# Names of these networks in arcface_torch's configurations.
ALIASES = {f"r{layers}": f"iresnet{layers}" for layers in (18, 34, 50, 100, 200)}


def names() -> list[str]:
    """Returns the names of all networks, by family and size."""
    return [*BUILDERS]


def build(
    name: str,
    *,
    embedding_size: int | None = None,
    image_shape: tuple[int, int, int] | None = None,
    dropout: float | None = None,
    synchronized_batch_norm: bool = False,
    dtype: str = "float32",
    **options,
) -> keras.Model:
    """Builds one of the library's networks, with new random weights.

    Example: `build("iresnet", depths=(1, 1, 1), width=32, image_shape=(48, 48, 3))`.

    Args:
        name: one of `names()`, ignoring case, "-", "_" and spaces. PLSC's "RestNet50"
            and arcface_torch's "r50" also work.
        embedding_size: embedding size. None means 512 for a face network; a zoo network
            then has no embedding layer and returns the features that its logits would
            be computed from.
        image_shape: (height, width, channels) in pixels; None means three channels and
            the network's default size, which is 112 for face networks.
        dropout: dropout rate before the embedding layer; None means the network's
            default (0.4 for PLSC's ResNets; docs/zoo.md lists the zoo's defaults).
        synchronized_batch_norm: whether batch normalization uses the statistics of the
            global batch.
        dtype: "float32", or "float16" or "bfloat16" for half precision everywhere
            except in the embedding layers. Weights are always float32. For finer
            control, see `plsc_tf.backbones.precision`.
        **options: options of the network's family: `variant` (resnet), `depths`,
            `width`, `stem_stride`, `head` (iresnet, resnet10), `drop_path`, `patch`
            (vit), `batch_norm_momentum` (zoo).

    Returns:
        A functional model from normalized float32 images `[N, height, width, channels]`
        to float32 embeddings `[N, embedding_size]`.

    Raises:
        ValueError: a name or option is unknown, or a value is out of range.
    """
    canonical = _canonical(name)
    builder, entry = BUILDERS[canonical], ENTRIES.get(canonical)
    if embedding_size is not None:
        embedding_size = arguments.positive_integer(embedding_size, "embedding_size")
    elif entry is None:
        embedding_size = FACE_EMBEDDING_SIZE
    if image_shape is None:
        size = FACE_IMAGE_SIZE if entry is None else entry.image_size
        image_shape = (size, size, 3)
    shape = arguments.checked_image_shape(image_shape)
    given = arguments.NetworkArguments(canonical, embedding_size, shape, dropout)
    precision = Precision(dtype)
    _check_options(canonical, builder, options)
    momentum = options.pop("batch_norm_momentum", ZOO_MOMENTUM)
    if entry is not None:
        given.require_pixels(entry.smallest)
    image = keras.Input(shape, name="image")
    output = builder(image, given, **options)
    if entry is not None and embedding_size is not None:
        output = EMBEDDING_STYLE.embedding_dense(output, embedding_size)
    network = keras.Model(image, output, name=canonical)
    for layer in network.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.synchronized = synchronized_batch_norm
            if entry is not None:
                layer.momentum = momentum
    return apply(network, precision)


def zoo_entry(name: str) -> Entry | None:
    """Returns the catalog entry of a zoo network, or None for a face network.

    Args:
        name: a name that `build` accepts.

    Raises:
        ValueError: no network has this name.
    """
    return ENTRIES.get(_canonical(name))


def _canonical(name: str) -> str:
    """Returns the key of `BUILDERS` for a user's spelling of it."""
    advice = "Pass your own networks to plsc_tf.backbones.from_user"
    require(isinstance(name, str), "name must be a string", advice, name=repr(name))
    spelling = re.sub(r"[\s_-]", "", name).lower()
    # PLSC's manual gives the default model_name as 'RestNet50'.
    spelling = spelling.replace("restnet", "resnet")
    if (spelling := ALIASES.get(spelling, spelling)) in PLAIN:
        return PLAIN[spelling]
    raise ValueError(
        f"Unknown network. Received: name={name!r}."
        f"{did_you_mean(name, BUILDERS, most=3)} The networks are "
        f"{', '.join(names())}. Pass your own to plsc_tf.backbones.from_user."
    )


def _check_options(name: str, builder, options: dict) -> None:
    parameters = inspect.signature(builder).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    known += ["batch_norm_momentum"] if name in ENTRIES else []
    for option in set(options) - set(known):
        raise ValueError(
            f"{name!r} has no option {option!r}. Its options: "
            f"{', '.join(known) or 'none'}. Received: {option}={options[option]!r}."
            f"{did_you_mean(option, known)}"
        )
