"""The catalog of the zoo: networks by name, with TF-Slim's image size and so on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from keras import applications, layers

from plsc_tf import private_apis
from plsc_tf.backbones.blocks import Style, fan_in_uniform
from plsc_tf.backbones.zoo import inception, plain, pnasnet
from plsc_tf.backbones.zoo.layers import dropout


@dataclass(frozen=True)
class Entry:
    """A network in the zoo.

    Args:
        build: function of (symbolic images, `NetworkArguments`, options) that returns
            the features for the logits, `[N, features]`.
        image_size: default height and width in pixels.
        smallest: minimum height and width in pixels.
        preprocessing: name of the preprocessing that TF-Slim uses with the network.
        auxiliary: name of the layer that auxiliary logits read; None if the network has
            no auxiliary logits.
    """

    build: Callable
    image_size: int
    smallest: int
    preprocessing: str
    auxiliary: str | None = None


# Of the embedding layer that follows the features if an embedding size is set.
EMBEDDING_STYLE = Style(epsilon=1e-3, dense_initializer=fan_in_uniform)


def application(maker: str, default_dropout: float, options: dict, image, arguments):
    """Builds a network from `keras.applications`; its layers keep Keras's names.

    Args:
        maker: name of the function in `keras.applications`.
        default_dropout: TF-Slim's dropout rate.
        options: options of that function. An additional option, "dense", lists the
            sizes of dense layers before the logits, as in VGG.
        image: symbolic images.
        arguments: `NetworkArguments`.
    """
    options = {"pooling": "avg", **options}
    dense = options.pop("dense", ())
    make = getattr(applications, maker)
    x = make(include_top=False, weights=None, input_tensor=image, **options).output
    if not dense:
        return dropout(x, arguments, default_dropout)
    x = layers.Flatten(name="flatten")(x)
    for number, size in enumerate(dense, start=1):
        x = layers.Dense(size, activation="relu", name=f"fc{number}")(x)
        x = dropout(x, arguments, default_dropout, f"dropout{number}")
    return x


def _resnet200(version, image, arguments):
    return dropout(private_apis.resnet200(version, image), arguments, 0.0)


def _nasnet_cifar(image, arguments):
    return dropout(private_apis.nasnet_cifar(image), arguments, 0.0)


def _plain(table, **initial):
    return partial(plain.plain, table, initial)


def _inception(table):
    return partial(inception.inception, table)


def _pnasnet(filters, cells, stem):
    return partial(pnasnet.pnasnet, filters, cells, stem)


def _keras(maker, default_dropout=0.0, **options):
    return partial(application, maker, default_dropout, options)


_VGG = {"dense": (4096, 4096), "pooling": None}
_CIFARNET = _plain(plain.CIFARNET, conv=0.05, fc=0.04, bias=0.1)
_INCEPTION_RESNET = _keras("InceptionResNetV2", 0.2)
_NASNET_MOBILE = _keras("NASNetMobile", 0.5)
_NASNET_LARGE = _keras("NASNetLarge", 0.5)
_RESNETS = {
    f"resnet_v{version}_{size}": Entry(_keras(f"ResNet{size}{end}"), 224, 32, "vgg")
    for size in (50, 101, 152)
    for version, end in ((1, ""), (2, "V2"))
}
_MOBILENETS = {
    f"mobilenet_{name}": Entry(_keras(maker, rate, alpha=alpha), 224, 32, "inception")
    for name, maker, rate, alpha in (
        ("v1", "MobileNet", 0.001, 1.0),
        ("v1_075", "MobileNet", 0.001, 0.75),
        ("v1_050", "MobileNet", 0.001, 0.5),
        ("v1_025", "MobileNet", 0.001, 0.25),
        ("v2", "MobileNetV2", 0.2, 1.0),
        ("v2_140", "MobileNetV2", 0.2, 1.4),
    )
}
ENTRIES: dict[str, Entry] = {
    "lenet": Entry(_plain(plain.LENET), 28, 4, "lenet"),
    "cifarnet": Entry(_CIFARNET, 32, 4, "cifarnet"),
    "alexnet_v2": Entry(_plain(plain.ALEXNET_V2, fc=0.005, bias=0.1), 224, 67, "vgg"),
    "overfeat": Entry(_plain(plain.OVERFEAT, fc=0.005, bias=0.1), 231, 71, "vgg"),
    "vgg_a": Entry(_plain(plain.VGG_A), 224, 32, "vgg"),
    "vgg_16": Entry(_keras("VGG16", 0.5, **_VGG), 224, 32, "vgg"),
    "vgg_19": Entry(_keras("VGG19", 0.5, **_VGG), 224, 32, "vgg"),
    "inception_v1": Entry(_inception(inception.V1), 224, 32, "inception"),
    "inception_v2": Entry(_inception(inception.V2), 224, 32, "inception"),
    "inception_v3": Entry(_keras("InceptionV3", 0.2), 299, 75, "inception", "mixed7"),
    "inception_v4": Entry(_inception(inception.V4), 299, 75, "inception", "mixed_6h"),
    "inception_resnet_v2": Entry(
        _INCEPTION_RESNET, 299, 75, "inception", "block17_20_ac"
    ),
    **_RESNETS,
    "resnet_v1_200": Entry(partial(_resnet200, 1), 224, 32, "vgg"),
    "resnet_v2_200": Entry(partial(_resnet200, 2), 224, 32, "vgg"),
    **_MOBILENETS,
    "nasnet_cifar": Entry(_nasnet_cifar, 32, 8, "cifarnet", "normal_concat_11"),
    "nasnet_mobile": Entry(_NASNET_MOBILE, 224, 32, "inception", "normal_concat_8"),
    "nasnet_large": Entry(_NASNET_LARGE, 331, 32, "inception", "normal_concat_12"),
    "pnasnet_mobile": Entry(_pnasnet(54, 9, 32), 224, 32, "inception", "cell_5"),
    "pnasnet_large": Entry(_pnasnet(216, 12, 96), 331, 32, "inception", "cell_7"),
}
