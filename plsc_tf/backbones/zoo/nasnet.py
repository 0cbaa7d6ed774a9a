"""NASNet-A for CIFAR and PNASNet-5: networks of searched cells.

Keras has NASNet-A mobile and large.
"""

from dataclasses import dataclass

import keras
from keras import layers

from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.zoo.layers import dropout, finish


@dataclass(frozen=True)
class Cell:
    """What a cell does with the last state (0) and the one before it (1).

    Args:
        pairs: for each new state the two that are added, as (operation, state).
        outputs: the states that are concatenated.
    """

    pairs: tuple
    outputs: tuple[int, ...]


# Source: Zoph et al. 2017, arXiv:1707.07012, figure 4.
NASNET_NORMAL = Cell(
    (
        (("separable5", 0), ("separable3", 1)),
        (("separable5", 1), ("separable3", 1)),
        (("average", 0), ("none", 1)),
        (("average", 1), ("average", 1)),
        (("separable3", 0), ("none", 0)),
    ),
    (1, 2, 3, 4, 5, 6),
)
NASNET_REDUCTION = Cell(
    (
        (("separable5", 0), ("separable7", 1)),
        (("maximum", 0), ("separable7", 1)),
        (("average", 0), ("separable5", 1)),
        (("none", 3), ("average", 2)),
        (("separable3", 2), ("maximum", 0)),
    ),
    (3, 4, 5, 6),
)
# Source: Liu et al. 2017, arXiv:1712.00559, figure 1.
PNASNET = Cell(
    (
        (("separable5", 1), ("maximum", 1)),
        (("separable7", 0), ("maximum", 0)),
        (("separable5", 0), ("separable3", 0)),
        (("separable3", 4), ("maximum", 0)),
        (("separable3", 1), ("none", 0)),
    ),
    (2, 3, 4, 5, 6),
)


@dataclass(frozen=True)
class Nasnet:
    """A network of cells.

    Args:
        filters: of the cells before the first reduction.
        cells: normal cells; filters double after each third.
        normal: the cell.
        reduction: the cell that halves, or None where the normal one with stride 2
            takes the place of one.
        stem: filters of the first convolution.
        stem_cells: cells with stride 2 before the first one.
        dropout: share of the features that is dropped.
        epsilon: of batch normalisation.
    """

    filters: int
    cells: int
    normal: Cell
    reduction: Cell | None
    stem: int
    stem_cells: int
    dropout: float
    epsilon: float = 1e-3

    @property
    def auxiliary_cell(self) -> int:
        """The cell before the second reduction, whose output auxiliary logits read."""
        return 2 * self.cells // 3 - 1

    def __call__(
        self,
        arguments: NetworkArguments,
        *,
        batch_norm_momentum: float = 0.99,
        drop_path: float = 0.0,
        name: str,
    ) -> keras.Model:
        """The network.

        Args:
            arguments: what all networks are asked for.
            batch_norm_momentum: of all batch normalisations.
            drop_path: share of examples for which an operation of the last cell is
                left out, less in those before; it does not grow with time as Slim's.
            name: the model's name.
        """
        image = keras.Input(arguments.image_shape, name="image")
        states = [None, self._stem(image)]
        reductions = (self.cells // 3, 2 * self.cells // 3)
        build = _Builder(self.epsilon, drop_path, self.cells + self.stem_cells + 2)
        for index in range(self.stem_cells):
            size = self.filters // 2 ** (self.stem_cells - index)
            states.append(build(self.normal, states, size, 2, f"stem_{index}"))
        size = self.filters
        for index in range(self.cells):
            stride, before = 1, states
            if index in reductions:
                size *= 2
                if self.reduction is None:
                    stride = 2
                else:
                    reduced = build(self.reduction, states, size, 2, f"reduce_{index}")
                    states = [*states, reduced]
                    before = states
            made = build(self.normal, before, size, stride, f"cell_{index}")
            states = [*states, made]
        x = layers.ReLU(name="features_relu")(states[-1])
        x = layers.GlobalAveragePooling2D(name="global_pool")(x)
        x = dropout(x, arguments, self.dropout)
        return finish(image, x, arguments, name=name, momentum=batch_norm_momentum)

    def _stem(self, image):
        halves = self.stem_cells > 0
        x = layers.Conv2D(
            self.stem,
            3,
            strides=2 if halves else 1,
            padding="valid" if halves else "same",
            use_bias=False,
            kernel_initializer=keras.initializers.HeNormal(),
            name="stem_conv",
        )(image)
        return layers.BatchNormalization(epsilon=self.epsilon, name="stem_bn")(x)


class _Builder:
    """Makes cells, one after the other."""

    def __init__(self, epsilon, drop_path, total):
        self._epsilon = epsilon
        self._drop_path = drop_path
        self._total = total
        self._made = 0

    def __call__(self, cell, states, filters, stride, name):
        """A cell behind the last two of `states`."""
        self._made += 1
        previous, last = states[-2:]
        first = self._conv(layers.ReLU()(last), filters, f"{name}_begin")
        own = [first, self._fitted(previous, last, filters, f"{name}_previous")]
        for number, pair in enumerate(cell.pairs):
            ends = []
            for side, (operation, state) in zip("ab", pair, strict=True):
                step = stride if state < 2 else 1
                label = f"{name}_{number}{side}"
                ends.append(
                    self._operation(own[state], operation, filters, step, label)
                )
            own.append(layers.Add(name=f"{name}_{number}")(ends))
        joined = []
        for state in cell.outputs:
            x = own[state]
            if x.shape[1:] != own[-1].shape[1:]:
                halve = x.shape[2] != own[-1].shape[2]
                x = self._reduced(x, filters, halve, f"{name}_out{state}")
            joined.append(x)
        return layers.Concatenate(name=name)(joined)

    def _fitted(self, previous, last, filters, name):
        """The state before the last, in the last one's size."""
        if previous is None:
            return last
        if previous.shape[2] != last.shape[2]:
            return self._reduced(layers.ReLU()(previous), filters, True, name)
        if previous.shape[3] != filters:
            return self._conv(layers.ReLU()(previous), filters, name)
        return previous

    def _reduced(self, x, filters, halve, name):
        """Other filters, and with `halve` every second pixel of two grids."""
        if not halve:
            return self._conv(x, filters, name)
        shifted = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"{name}_pad")(x)
        shifted = layers.Cropping2D(((1, 0), (1, 0)), name=f"{name}_crop")(shifted)
        halves = []
        for side, grid in zip("ab", (x, shifted), strict=True):
            pixels = layers.MaxPooling2D(1, 2, name=f"{name}_pixels_{side}")(grid)
            halves.append(self._plain(pixels, filters // 2, 1, f"{name}_{side}"))
        return self._norm(layers.Concatenate(name=f"{name}_both")(halves), name)

    def _operation(self, x, operation, filters, stride, name):
        if operation == "none":
            if stride > 1 or x.shape[3] != filters:
                return self._conv(layers.ReLU()(x), filters, name, stride)
            return x
        if operation.startswith("separable"):
            x = self._separable(x, int(operation[-1]), filters, stride, name)
        else:
            kind = {"average": layers.AveragePooling2D, "maximum": layers.MaxPooling2D}
            pooling = kind[operation](3, stride, padding="same", name=f"{name}_pool")
            x = pooling(x)
            if x.shape[3] != filters:
                x = self._conv(x, filters, name)
        share = self._drop_path * self._made / self._total
        if not share:
            return x
        return layers.Dropout(share, noise_shape=(None, 1, 1, 1), name=f"{name}_drop")(
            x
        )

    def _separable(self, x, size, filters, stride, name):
        for number, step in enumerate((stride, 1), start=1):
            x = layers.SeparableConv2D(
                filters,
                size,
                strides=step,
                padding="same",
                use_bias=False,
                depthwise_initializer=keras.initializers.HeNormal(),
                pointwise_initializer=keras.initializers.HeNormal(),
                name=f"{name}_separable{number}",
            )(layers.ReLU()(x))
            x = self._norm(x, f"{name}_separable{number}")
        return x

    def _conv(self, x, filters, name, stride=1):
        return self._norm(self._plain(x, filters, stride, name), name)

    def _plain(self, x, filters, stride, name):
        return layers.Conv2D(
            filters,
            1,
            strides=stride,
            use_bias=False,
            kernel_initializer=keras.initializers.HeNormal(),
            name=f"{name}_conv",
        )(x)

    def _norm(self, x, name):
        return layers.BatchNormalization(epsilon=self._epsilon, name=f"{name}_bn")(x)


NASNET_CIFAR = Nasnet(
    filters=32,
    cells=18,
    normal=NASNET_NORMAL,
    reduction=NASNET_REDUCTION,
    stem=96,
    stem_cells=0,
    dropout=0.0,
    epsilon=1e-5,
)
PNASNET_MOBILE = Nasnet(
    filters=54,
    cells=9,
    normal=PNASNET,
    reduction=None,
    stem=32,
    stem_cells=2,
    dropout=0.5,
)
PNASNET_LARGE = Nasnet(
    filters=216,
    cells=12,
    normal=PNASNET,
    reduction=None,
    stem=96,
    stem_cells=2,
    dropout=0.5,
)
