"""Networks that Keras has, without their classifiers and without downloads."""

import keras
from keras import applications, layers

from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.zoo.layers import dropout, finish


class Application:
    """A network of `keras.applications`; its layers have Keras's names.

    Args:
        maker: the function of `keras.applications`.
        dropout: share of the features that is dropped, TF-Slim's.
        dense: numbers of dense layers between pooling and logits, as VGG has them.
        **options: of the function.
    """

    def __init__(self, maker: str, *, dropout: float = 0.0, dense=(), **options):
        self._maker = getattr(applications, maker)
        self._dropout = dropout
        self._dense = dense
        self._options = options

    def __call__(
        self,
        arguments: NetworkArguments,
        *,
        batch_norm_momentum: float = 0.99,
        name: str,
    ) -> keras.Model:
        """The network.

        Args:
            arguments: what all networks are asked for.
            batch_norm_momentum: of all batch normalisations.
            name: the model's name.
        """
        image = keras.Input(arguments.image_shape, name="image")
        network = self._maker(
            include_top=False,
            weights=None,
            input_tensor=image,
            pooling=None if self._dense else "avg",
            **self._options,
        )
        x = network.output
        if not self._dense:
            x = dropout(x, arguments, self._dropout)
        else:
            x = layers.Flatten(name="flatten")(x)
            for number, size in enumerate(self._dense, start=1):
                x = layers.Dense(size, activation="relu", name=f"fc{number}")(x)
                x = dropout(x, arguments, self._dropout, f"dropout{number}")
        return finish(image, x, arguments, name=name, momentum=batch_norm_momentum)
