"""The layers that the networks share: padding, slopes, initial values, order."""

import keras
import numpy as np
import pytest
from tensorflow import nn

from plsc_tf import backbones
from plsc_tf.backbones import blocks

STYLE = blocks.Style(1e-5, blocks.fan_out_normal, blocks.fan_out_normal)


@pytest.mark.parametrize("side", [6, 7])
@pytest.mark.parametrize(
    ("size", "stride", "groups"), [(3, 1, 1), (3, 2, 1), (1, 2, 1), (3, 2, 2)]
)
def test_convolution_pads_on_every_side_as_torch_does(side, size, stride, groups):
    image = keras.Input((side, side, 2))
    if groups == 1:
        output = STYLE.conv(image, 4, size, stride=stride, name="c")
        convolve = nn.conv2d
    else:
        output = STYLE.depthwise(image, size, stride=stride, name="d")
        convolve = nn.depthwise_conv2d
    model = keras.Model(image, output)
    x = np.random.default_rng(0).normal(size=(1, side, side, 2)).astype("float32")
    sides = [size // 2] * 2  # on every side of the image
    expected = convolve(
        x, *model.get_weights(), [1, stride, stride, 1], [[0, 0], sides, sides, [0, 0]]
    )
    np.testing.assert_allclose(model(x), expected, atol=1e-5)


def test_slopes_and_batch_norm_constants_are_those_of_the_sources(sketch):
    arcface = backbones.build("iresnet", depths=(1,), width=8, image_shape=(8, 8, 3))
    plsc = sketch("resnet50", image_shape=(16, 16, 3))
    assert plsc.get_layer("stem_prelu").alpha.shape == (1, 1, 1)
    np.testing.assert_array_equal(
        arcface.get_layer("stem_prelu").get_weights()[0], np.full((1, 1, 8), 0.25)
    )
    for network, epsilon, scale in ((plsc, 2e-5, True), (arcface, 1e-5, False)):
        last = network.get_layer("embedding")
        assert (last.epsilon, last.momentum, last.scale) == (epsilon, 0.9, scale)


def test_initial_values_have_the_spread_of_the_sources():
    keras.utils.set_random_seed(1)
    network = backbones.build("iresnet", depths=(1,), width=64, image_shape=(16, 16, 3))
    first = network.get_layer("stage1_block1_conv1").get_weights()[0]
    second = network.get_layer("stage1_block1_conv2").get_weights()[0]
    assert first.std() == pytest.approx(0.1, rel=0.02)  # 36,864 numbers
    assert not np.array_equal(first, second)
    kernel, bias = network.get_layer("embedding_dense").get_weights()
    limit = 1 / np.sqrt(8 * 8 * 64)
    assert np.abs(kernel).max() == pytest.approx(limit, rel=0.01)
    assert np.abs(bias).max() <= limit
    # Paddle's Xavier with fan_in 0: variance 2 / (3·3·32).
    values = blocks.fan_out_normal(0, 3 * 3 * 32)((200, 200))
    assert np.std(values) == pytest.approx(np.sqrt(2 / 288), rel=0.02)
