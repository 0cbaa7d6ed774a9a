"""The options of half precision, loss scaling and NaN."""

import pytest

from plsc_tf.options.settings import Settings


def precision(**options):
    return Settings.from_values(**options).precision


def test_what_the_backbone_computes_in():
    assert precision().dtype == "float32"
    assert precision(use_fp16=True).dtype == precision(fp16=True).dtype == "float16"
    assert precision(use_bf16=True).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("text", "white", "black"),
    [
        ("", (), ()),
        ("white:Conv2D,Dense;black:PReLU", ("Conv2D", "Dense"), ("PReLU",)),
        (" black : PReLU , stem_conv ; ", (), ("PReLU", "stem_conv")),
    ],
)
def test_lists_of_layers(text, white, black):
    lists = precision(amp_lists=text).parsed("amp_lists")
    assert lists == {"white": white, "black": black}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"use_fp16": True, "use_bf16": True}, "not both"),
        ({"loss_scale": 0.5}, "Received: loss_scale=0.5"),
        ({"loss_scale": 128, "init_loss_scaling": 2}, "not both.*128.0"),
        ({"amp_lists": "Conv2D"}, "Received: item='Conv2D'"),
        ({"amp_lists": "grey:Conv2D"}, "Received: item='grey:Conv2D'"),
        ({"amp_lists": "white:Conv2D,,Dense"}, "Received: item='white:Conv2D,,Dense'"),
        ({"amp_lists": "white:A;white:B"}, "Received: item='white:B'"),
    ],
)
def test_contradictions_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        precision(**options)


@pytest.mark.parametrize("loss_scale", [0, 1])
def test_no_fixed_scale_goes_with_plscs_dynamic_one(loss_scale):
    assert precision(loss_scale=loss_scale, init_loss_scaling=1024)


def test_mindspores_levels_are_precisions():
    levels = {"O0": "float32", "O1": "float16", "o2": "float16", "O3": "float16"}
    for level, dtype in levels.items():
        settings = Settings.from_values(amp_level=level)
        assert settings.precision.dtype == dtype
        assert settings.replace(seed=1).precision.dtype == dtype
    with pytest.raises(ValueError, match="amp_level=O0 is float32"):
        Settings.from_values(amp_level="O0", use_bf16=True)
    with pytest.raises(ValueError, match="Set use_fp16 or use_bf16"):
        Settings.from_values(amp_level="O2", use_bf16=True)
