"""The other libraries' networks in numpy: float64, [N, channels, height, width].

Running one makes its weights, under the names that the library gives them, and is the
oracle for what those weights mean.
"""

import collections

import numpy as np


class Network:
    """A face ResNet of basic blocks that draws its weights where it needs them."""

    def __init__(self, seed, epsilon):
        self.weights = {}
        self.random = np.random.default_rng(seed)
        self.epsilon = epsilon

    def draw(self, name, shape, low, high):
        if name not in self.weights:
            drawn = self.random.uniform(low, high, shape)
            self.weights[name] = drawn.astype(np.float32)
        return self.weights[name].astype(np.float64)

    def conv(self, x, name, outputs, size=3, stride=1):
        bound = np.sqrt(3.0 / (x.shape[1] * size * size))
        shape = (outputs, x.shape[1], size, size)
        kernel = self.draw(self.name("conv2d", name)[0], shape, -bound, bound)
        pad = size // 2
        x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (2, 3))
        windows = windows[:, :, ::stride, ::stride]
        return np.einsum("nchwij,ocij->nohw", windows, kernel, optimize=True)

    def norm(self, x, name):
        scale, shift, mean, variance = self.name("batch_norm", name)
        count = x.shape[1]
        gamma = self.scale(scale, count)
        beta = self.draw(shift, (count,), -0.3, 0.3)
        mu = self.draw(mean, (count,), -0.3, 0.3)
        sigma = self.draw(variance, (count,), 0.5, 1.5)
        wide = (1, -1) + (1,) * (x.ndim - 2)
        factor = (gamma / np.sqrt(sigma + self.epsilon)).reshape(wide)
        return (x - mu.reshape(wide)) * factor + beta.reshape(wide)

    def scale(self, name, count):
        return self.draw(name, (count,), 0.5, 1.5)

    def prelu(self, x, name):
        slopes = self.draw(self.name("prelu", name)[0], self.slopes(x), 0.1, 0.4)
        return np.where(x > 0, x, x * slopes.reshape(1, -1, 1, 1))

    def embed(self, images, depths, widths, size):
        x = np.asarray(images, np.float64).transpose(0, 3, 1, 2)
        x = (x - 127.5) / self.divisor
        x = self.norm(self.conv(x, "conv1", widths[0]), "bn1")
        x = self.prelu(x, "prelu")
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True), 1):
            for block in range(depth):
                x = self.block(x, f"layer{stage}.{block}.", width, 1 if block else 2)
        x = self.norm(x, "bn2")
        x = x.reshape(len(x), -1)
        weight, bias = self.name("fc", "fc")[:2]
        kernel = self.dense(weight, x.shape[1], size, np.sqrt(3.0 / x.shape[1]))
        return self.norm(x @ kernel + self.draw(bias, (size,), -1, 1), "features")

    def block(self, x, prefix, width, stride):
        y = self.conv(self.norm(x, prefix + "bn1"), prefix + "conv1", width)
        y = self.prelu(self.norm(y, prefix + "bn2"), prefix + "prelu")
        y = self.conv(y, prefix + "conv2", width, stride=stride)
        y = self.norm(y, prefix + "bn3")
        if stride != 1 or x.shape[1] != width:
            x = self.conv(x, prefix + "downsample.0", width, 1, stride)
            x = self.norm(x, prefix + "downsample.1")
        return x + y


class ArcfaceTorch(Network):
    """PyTorch's names; images are (x − 127.5) / 127.5."""

    divisor = 127.5

    def __init__(self, seed=0):
        super().__init__(seed, epsilon=1e-5)

    def name(self, kind, name):
        ends = ("weight", "bias", "running_mean", "running_var")
        return [f"{name}.{end}" for end in ends]

    def slopes(self, x):
        return x.shape[1:2]

    def dense(self, name, inputs, outputs, bound):
        return self.draw(name, (outputs, inputs), -bound, bound).T


class Plsc(Network):
    """Paddle's names, numbered as the layers are made; (x − 127.5) / 128."""

    divisor = 128.0

    def __init__(self, seed=0):
        super().__init__(seed, epsilon=2e-5)
        self.counts = collections.Counter()

    def name(self, kind, name):
        layer = f"{kind}_{self.counts[kind]}"
        self.counts[kind] += 1
        return [f"{layer}.{end}" for end in ("w_0", "b_0", "w_1", "w_2")]

    def slopes(self, x):
        return (1,)

    def dense(self, name, inputs, outputs, bound):
        return self.draw(name, (inputs, outputs), -bound, bound)
