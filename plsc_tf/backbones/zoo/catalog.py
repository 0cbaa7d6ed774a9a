"""All networks of the zoo by name, and what TF-Slim pairs with each."""

from collections.abc import Callable
from dataclasses import dataclass

import keras

from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.zoo import inception, nasnet, plain, resnet200
from plsc_tf.backbones.zoo.applications import Application


@dataclass(frozen=True)
class Entry:
    """A network of the zoo.

    Args:
        build: function of (`NetworkArguments`, name=…, options) to a model.
        image_size: default height and width in pixels.
        smallest: smallest height and width in pixels that it can be built for.
        preprocessing: name of the preprocessing that TF-Slim pairs with it.
        auxiliary: name of the layer that auxiliary logits read, if there are any.
    """

    build: Callable[..., keras.Model]
    image_size: int
    smallest: int
    preprocessing: str
    auxiliary: str | None = None

    def check(self, arguments: NetworkArguments, name: str) -> None:
        """Refuses images that leave no pixel for the last layers.

        Raises:
            ValueError: names the smallest size.
        """
        if min(arguments.image_shape[:2]) < self.smallest:
            raise ValueError(
                f"'{name}' needs images of at least {self.smallest} x {self.smallest} "
                f"pixels; its default is {self.image_size} x {self.image_size}. "
                f"Received: image_shape={arguments.image_shape}"
            )


def _resnets() -> dict[str, Entry]:
    found = {}
    for layers in (50, 101, 152):
        for version, suffix in ((1, ""), (2, "V2")):
            build = Application(f"ResNet{layers}{suffix}")
            found[f"resnet_v{version}_{layers}"] = Entry(build, 224, 32, "vgg")
    found["resnet_v1_200"] = Entry(resnet200.resnet_v1_200, 224, 32, "vgg")
    found["resnet_v2_200"] = Entry(resnet200.resnet_v2_200, 224, 32, "vgg")
    return found


def _mobilenets() -> dict[str, Entry]:
    found = {}
    for suffix, alpha in (("", 1.0), ("_075", 0.75), ("_050", 0.5), ("_025", 0.25)):
        build = Application("MobileNet", dropout=0.001, alpha=alpha)
        found[f"mobilenet_v1{suffix}"] = Entry(build, 224, 32, "inception")
    for suffix, alpha in (("", 1.0), ("_140", 1.4)):
        build = Application("MobileNetV2", dropout=0.2, alpha=alpha)
        found[f"mobilenet_v2{suffix}"] = Entry(build, 224, 32, "inception")
    return found


def _nasnets() -> dict[str, Entry]:
    mobile = Application("NASNetMobile", dropout=0.5)
    large = Application("NASNetLarge", dropout=0.5)
    return {
        "nasnet_cifar": Entry(nasnet.NASNET_CIFAR, 32, 8, "cifarnet", "cell_11"),
        "nasnet_mobile": Entry(mobile, 224, 32, "inception", "normal_concat_8"),
        "nasnet_large": Entry(large, 331, 32, "inception", "normal_concat_12"),
        "pnasnet_mobile": Entry(nasnet.PNASNET_MOBILE, 224, 32, "inception", "cell_5"),
        "pnasnet_large": Entry(nasnet.PNASNET_LARGE, 331, 32, "inception", "cell_7"),
    }


ENTRIES: dict[str, Entry] = {
    "lenet": Entry(plain.lenet, 28, 4, "lenet"),
    "cifarnet": Entry(plain.cifarnet, 32, 4, "cifarnet"),
    "alexnet_v2": Entry(
        plain.Plain(plain.ALEXNET, deviation=0.005, bias=0.1), 224, 67, "vgg"
    ),
    "overfeat": Entry(
        plain.Plain(plain.OVERFEAT, (3072, 4096), deviation=0.005, bias=0.1),
        231,
        71,
        "vgg",
    ),
    "vgg_a": Entry(plain.Plain(plain.VGG_A), 224, 32, "vgg"),
    "vgg_16": Entry(
        Application("VGG16", dropout=0.5, dense=(4096, 4096)), 224, 32, "vgg"
    ),
    "vgg_19": Entry(
        Application("VGG19", dropout=0.5, dense=(4096, 4096)), 224, 32, "vgg"
    ),
    "inception_v1": Entry(inception.inception_v1, 224, 32, "inception"),
    "inception_v2": Entry(inception.inception_v2, 224, 32, "inception"),
    "inception_v3": Entry(
        Application("InceptionV3", dropout=0.2), 299, 75, "inception", "mixed7"
    ),
    "inception_v4": Entry(inception.inception_v4, 299, 75, "inception", "mixed_6h"),
    "inception_resnet_v2": Entry(
        Application("InceptionResNetV2", dropout=0.2),
        299,
        75,
        "inception",
        "block17_20_ac",
    ),
    **_resnets(),
    **_mobilenets(),
    **_nasnets(),
}
