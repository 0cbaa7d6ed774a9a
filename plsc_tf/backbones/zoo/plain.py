"""Networks of one layer after the other: LeNet, CifarNet, AlexNet, OverFeat, VGG.

Their first dense layer is as large as the last feature map, so that pictures of other
sizes than the default change its number of weights.
"""

from dataclasses import dataclass

import keras
from keras import layers

from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.zoo.layers import LocalResponseNormalization, dropout, finish

# (filters, size) is a convolution, with stride and padding where they are not 1 and
# "same"; (size,) is max pooling with stride 2.
ALEXNET = (
    (64, 11, 4, "valid"),
    (3,),
    (192, 5),
    (3,),
    (384, 3),
    (384, 3),
    (256, 3),
    (3,),
)
OVERFEAT = (
    (64, 11, 4, "valid"),
    (2,),
    (256, 5, 1, "valid"),
    (2,),
    (512, 3),
    (1024, 3),
    (1024, 3),
    (2,),
)
VGG_A = (
    *((64, 3), (2,), (128, 3), (2,)),
    *((256, 3), (256, 3), (2,)),
    *((512, 3), (512, 3), (2,)) * 2,
)


@dataclass(frozen=True)
class Plain:
    """Convolutions and poolings, then two dense layers.

    Args:
        steps: see `ALEXNET`.
        dense: numbers of the two dense layers.
        deviation: of the dense layers' initial weights; None is Glorot's.
        bias: initial bias of the dense layers.
    """

    steps: tuple
    dense: tuple[int, int] = (4096, 4096)
    deviation: float | None = None
    bias: float = 0.0

    def __call__(
        self,
        arguments: NetworkArguments,
        *,
        batch_norm_momentum: float = 0.99,
        name: str,
    ) -> keras.Model:
        """The network.

        Args:
            arguments: what all networks are asked for; dropout is 0.5.
            batch_norm_momentum: of the embedding layer's batch normalisation.
            name: the model's name.
        """
        image = keras.Input(arguments.image_shape, name="image")
        x = self._features(image)
        x = layers.Flatten(name="flatten")(x)
        for number, size in enumerate(self.dense, start=6):
            x = _dense(x, size, f"fc{number}", self.deviation, self.bias)
            x = dropout(x, arguments, 0.5, f"dropout{number}")
        return finish(image, x, arguments, name=name, momentum=batch_norm_momentum)

    def _features(self, x):
        number = 1
        for step in self.steps:
            if len(step) == 1:
                x = layers.MaxPooling2D(step[0], 2, name=f"pool{number - 1}")(x)
                continue
            filters, size, stride, padding = (*step[:2], *(step[2:] or (1, "same")))
            x = layers.Conv2D(
                filters,
                size,
                strides=stride,
                padding=padding,
                activation="relu",
                name=f"conv{number}",
            )(x)
            number += 1
        return x


def lenet(
    arguments: NetworkArguments,
    *,
    batch_norm_momentum: float = 0.99,
    name: str = "lenet",
) -> keras.Model:
    """TF-Slim's LeNet: two convolutions of 5×5 and a dense layer of 1024.

    Source: LeCun et al. 1998, in the size of TensorFlow's first MNIST tutorial and of
    `slim/nets/lenet.py`. Dropout is 0.5.

    Args:
        arguments: what all networks are asked for.
        batch_norm_momentum: of the embedding layer's batch normalisation.
        name: the model's name.
    """
    image = keras.Input(arguments.image_shape, name="image")
    x = image
    for number, filters in enumerate((32, 64), start=1):
        x = layers.Conv2D(
            filters, 5, padding="same", activation="relu", name=f"conv{number}"
        )(x)
        x = layers.MaxPooling2D(2, name=f"pool{number}")(x)
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dense(1024, activation="relu", name="fc3")(x)
    x = dropout(x, arguments, 0.5)
    return finish(image, x, arguments, name=name, momentum=batch_norm_momentum)


def cifarnet(
    arguments: NetworkArguments,
    *,
    batch_norm_momentum: float = 0.99,
    name: str = "cifarnet",
) -> keras.Model:
    """TF-Slim's CifarNet, cuda-convnet's layers for CIFAR-10.

    Source: `slim/nets/cifarnet.py`. Dropout is 0.5, between the dense layers.

    Args:
        arguments: what all networks are asked for.
        batch_norm_momentum: of the embedding layer's batch normalisation.
        name: the model's name.
    """
    image = keras.Input(arguments.image_shape, name="image")
    x = _cifar_conv(image, "conv1")
    x = layers.MaxPooling2D(2, name="pool1")(x)
    x = LocalResponseNormalization(name="norm1")(x)
    x = _cifar_conv(x, "conv2")
    x = LocalResponseNormalization(name="norm2")(x)
    x = layers.MaxPooling2D(2, name="pool2")(x)
    x = layers.Flatten(name="flatten")(x)
    x = dropout(_dense(x, 384, "fc3", 0.04, 0.1), arguments, 0.5)
    x = _dense(x, 192, "fc4", 0.04, 0.1)
    return finish(image, x, arguments, name=name, momentum=batch_norm_momentum)


def _cifar_conv(x, name):
    initial = keras.initializers.TruncatedNormal(stddev=0.05)
    return layers.Conv2D(
        64, 5, padding="same", activation="relu", kernel_initializer=initial, name=name
    )(x)


def _dense(x, size, name, deviation, bias):
    kernel = keras.initializers.GlorotUniform()
    if deviation is not None:
        kernel = keras.initializers.TruncatedNormal(stddev=deviation)
    return layers.Dense(
        size,
        activation="relu",
        kernel_initializer=kernel,
        bias_initializer=keras.initializers.Constant(bias),
        name=name,
    )(x)
