"""NASNet-A for CIFAR and PNASNet-5: networks found by architecture search.

NASNet-A mobile and large come from Keras.
"""

from dataclasses import dataclass

import keras
from keras import layers

from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.zoo.layers import conv, dropout, norm

# A cell consists of a list of states and the numbers of the states to concatenate. Each
# new state is the sum of two operations. Their inputs are the outputs of the previous
# cell (0) and of the cell before that (1), or new states (2, 3, ...).
# Zoph et al. 2017, arXiv:1707.07012, figure 4.
NASNET_NORMAL = (
    "separable5 0 + separable3 1, separable5 1 + separable3 1, average 0 + none 1, "
    "average 1 + average 1, separable3 0 + none 0",
    (1, 2, 3, 4, 5, 6),
)
NASNET_REDUCTION = (
    "separable5 0 + separable7 1, maximum 0 + separable7 1, average 0 + separable5 1, "
    "none 3 + average 2, separable3 2 + maximum 0",
    (3, 4, 5, 6),
)
# Liu et al. 2017, arXiv:1712.00559, figure 1.
PNASNET = (
    "separable5 1 + maximum 1, separable7 0 + maximum 0, separable5 0 + separable3 0, "
    "separable3 4 + maximum 0, separable3 1 + none 0",
    (2, 3, 4, 5, 6),
)


@dataclass(frozen=True)
class Nasnet:
    """A network of cells.

    Args:
        filters: filters of the cells before the first reduction.
        cells: number of normal cells; after each third of them, the number of filters
            doubles.
        normal: the normal cell.
        reduction: the reduction cell, which halves height and width; None to use a
            normal cell with stride 2 instead.
        stem: filters of the first convolution.
        stem_cells: number of cells with stride 2 before the first normal cell.
        dropout: default dropout rate.
        epsilon: epsilon of batch normalization.
    """

    filters: int
    cells: int
    normal: tuple
    reduction: tuple | None
    stem: int
    stem_cells: int
    dropout: float
    epsilon: float = 1e-3

    def __call__(self, image, arguments: NetworkArguments):
        """Builds the network, which drops no paths in training, unlike Slim's.

        Args:
            image: symbolic images.
            arguments: the network's common arguments.

        Returns:
            `[N, features]` tensor.
        """
        stem = {"stride": 2, "padding": "valid"} if self.stem_cells else {}
        x = conv(image, self.stem, 3, name="stem_conv", **stem)
        states = [None, norm(x, "stem", self.epsilon)]
        for index in range(self.stem_cells):
            size = self.filters // 2 ** (self.stem_cells - index)
            states.append(self._cell(self.normal, states, size, 2, f"stem_{index}"))
        size = self.filters
        for index in range(self.cells):
            stride, before = 1, states
            if index in (self.cells // 3, 2 * self.cells // 3):
                size *= 2
                if self.reduction is None:
                    stride = 2
                else:
                    name, cell = f"reduce_{index}", self.reduction
                    before = [*states, self._cell(cell, states, size, 2, name)]
            name = f"cell_{index}"
            states = [*before, self._cell(self.normal, before, size, stride, name)]
        x = layers.ReLU(name="features_relu")(states[-1])
        x = layers.GlobalAveragePooling2D(name="global_pool")(x)
        return dropout(x, arguments, self.dropout)

    def _cell(self, cell, states, filters, stride, name):
        """Builds a cell whose inputs are the last two of `states`."""
        pairs, outputs = cell
        previous, last = states[-2:]
        first = self._conv(layers.ReLU()(last), filters, f"{name}_begin")
        nodes = [first, self._fitted(previous, last, filters, f"{name}_previous")]
        for number, pair in enumerate(pairs.split(", ")):
            ends = []
            for side, words in zip("ab", pair.split(" + "), strict=True):
                operation, state = words.split()
                step = stride if int(state) < 2 else 1
                label = f"{name}_{number}{side}"
                x = nodes[int(state)]
                ends.append(self._operation(x, operation, filters, step, label))
            nodes.append(layers.Add(name=f"{name}_{number}")(ends))
        joined = []
        for state in outputs:
            x = nodes[state]
            if x.shape[1:] != nodes[-1].shape[1:]:
                halve = x.shape[2] != nodes[-1].shape[2]
                x = self._reduced(x, filters, halve, f"{name}_out{state}")
            joined.append(x)
        return layers.Concatenate(name=name)(joined)

    def _fitted(self, previous, last, filters, name):
        """Returns the second-to-last state, converted to the last state's shape."""
        if previous is None:
            return last
        halve = previous.shape[2] != last.shape[2]
        if not halve and previous.shape[3] == filters:
            return previous
        return self._reduced(layers.ReLU()(previous), filters, halve, name)

    def _reduced(self, x, filters, halve, name):
        """Changes the number of filters and, with `halve`, halves height and width.

        Halving takes every second pixel from two grids that are one pixel apart.
        """
        if not halve:
            return self._conv(x, filters, name)
        shifted = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"{name}_pad")(x)
        shifted = layers.Cropping2D(((1, 0), (1, 0)), name=f"{name}_crop")(shifted)
        halves = []
        for side, grid in zip("ab", (x, shifted), strict=True):
            pixels = layers.MaxPooling2D(1, 2, name=f"{name}_pixels_{side}")(grid)
            label = f"{name}_{side}_conv"
            halves.append(conv(pixels, filters // 2, 1, padding="valid", name=label))
        both = layers.Concatenate(name=f"{name}_both")(halves)
        return norm(both, name, self.epsilon)

    def _operation(self, x, operation, filters, stride, name):
        if operation == "none":
            if stride > 1 or x.shape[3] != filters:
                return self._conv(layers.ReLU()(x), filters, name, stride)
            return x
        if operation.startswith("separable"):
            return self._separable(x, int(operation[-1]), filters, stride, name)
        kind = {"average": layers.AveragePooling2D, "maximum": layers.MaxPooling2D}
        x = kind[operation](3, stride, padding="same", name=f"{name}_pool")(x)
        return x if x.shape[3] == filters else self._conv(x, filters, name)

    def _separable(self, x, size, filters, stride, name):
        for number, step in enumerate((stride, 1), start=1):
            label = f"{name}_separable{number}"
            convolution = layers.SeparableConv2D(
                filters,
                size,
                step,
                padding="same",
                use_bias=False,
                depthwise_initializer=keras.initializers.HeNormal(),
                pointwise_initializer=keras.initializers.HeNormal(),
                name=label,
            )
            x = norm(convolution(layers.ReLU()(x)), label, self.epsilon)
        return x

    def _conv(self, x, filters, name, stride=1):
        x = conv(x, filters, 1, stride=stride, padding="valid", name=f"{name}_conv")
        return norm(x, name, self.epsilon)


NASNET_CIFAR = Nasnet(32, 18, NASNET_NORMAL, NASNET_REDUCTION, 96, 0, 0.0, 1e-5)
PNASNET_MOBILE = Nasnet(54, 9, PNASNET, None, 32, 2, 0.5)
PNASNET_LARGE = Nasnet(216, 12, PNASNET, None, 96, 2, 0.5)
