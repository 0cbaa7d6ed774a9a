"""PNASNet-5, a network of cells that were found by architecture search."""

from keras import layers

from plsc_tf import private_apis
from plsc_tf.backbones.arguments import NetworkArguments
from plsc_tf.backbones.zoo.layers import conv, dropout, norm

# Each new state of a cell is the sum of two operations. Their inputs are the outputs of
# the previous cell (0) and of the cell before that (1), or new states (2, 3, ...).
# Liu et al. 2017, arXiv:1712.00559, figure 1.
CELL = (
    "separable5 1 + maximum 1, separable7 0 + maximum 0, separable5 0 + separable3 0, "
    "separable3 4 + maximum 0, separable3 1 + none 0"
)
# Cells with stride 2 before the first normal cell.
STEM_CELLS = 2


def pnasnet(filters: int, cells: int, stem: int, image, arguments: NetworkArguments):
    """Builds the network, which drops no paths in training, unlike Slim's.

    Args:
        filters: filters of the first normal cells.
        cells: number of normal cells; after each third of them, the number of filters
            doubles, and height and width are halved.
        stem: filters of the first convolution.
        image: symbolic images.
        arguments: the network's common arguments; dropout is 0.5.

    Returns:
        `[N, features]` tensor.
    """
    x = conv(image, stem, 3, stride=2, padding="valid", name="stem_conv")
    before, x = None, norm(x, "stem")
    for index in range(STEM_CELLS):
        size = filters // 2 ** (STEM_CELLS - index)
        before, x = x, _cell(before, x, size, 2, f"stem_{index}")
    for index in range(cells):
        stage, cell = divmod(index, cells // 3)
        stride = 2 if stage and not cell else 1
        before, x = x, _cell(before, x, filters * 2**stage, stride, f"cell_{index}")
    x = layers.ReLU(name="features_relu")(x)
    x = layers.GlobalAveragePooling2D(name="global_pool")(x)
    return dropout(x, arguments, 0.5)


def _cell(before, last, filters, stride, name):
    """Builds a cell; `before` is the second-to-last state, if there is one."""
    first = _conv(layers.ReLU()(last), filters, f"{name}_begin")
    states = [first, private_apis.nasnet_adjusted(before, last, filters, name)]
    for number, pair in enumerate(CELL.split(", ")):
        ends = []
        for side, words in zip("ab", pair.split(" + "), strict=True):
            operation, state = words.split()
            step = stride if int(state) < 2 else 1
            label = f"{name}_{number}{side}"
            ends.append(_operation(states[int(state)], operation, filters, step, label))
        states.append(layers.Add(name=f"{name}_{number}")(ends))
    return layers.Concatenate(name=name)(states[2:])


def _operation(x, operation, filters, stride, name):
    if operation == "none":
        return x if stride == 1 else _conv(layers.ReLU()(x), filters, name, stride)
    if operation == "maximum":
        x = layers.MaxPooling2D(3, stride, padding="same", name=f"{name}_pool")(x)
        return x if x.shape[3] == filters else _conv(x, filters, name)
    size = int(operation.removeprefix("separable"))
    return private_apis.nasnet_separable(x, filters, size, stride, name)


def _conv(x, filters, name, stride=1):
    x = conv(x, filters, 1, stride=stride, padding="valid", name=f"{name}_conv")
    return norm(x, name)
