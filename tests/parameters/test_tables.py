"""Every parameter of FastNN's and PLSC's manuals, by name, type and default."""

import pathlib

import pytest
from tables import FASTNN, FASTNN_CHOICES, NO_DEFAULT, OURS, PLSC, PRECISION_DEFAULTS

from plsc_tf.options import cli
from plsc_tf.options.other_systems import IGNORED
from plsc_tf.options.settings import Settings, known_options

ROOT = pathlib.Path(__file__).parents[2]
KNOWN = known_options()
PLSC_NAMES = {KNOWN[name].name: default for name, _, default in PLSC}


def listed(value):
    """A comma-separated default as the tuple that a list option has."""
    return tuple(value.split(",")) if isinstance(value, str) else tuple(value)


def text_of(value):
    """Ids that are alike in every process of pytest-xdist."""
    return "no default" if value is NO_DEFAULT else str(value)


@pytest.mark.parametrize(("name", "kind", "default"), PLSC, ids=text_of)
def test_a_parameter_of_plsc(name, kind, default):
    item = KNOWN[name]
    if name in OURS:
        assert item.default == OURS[name]
        return
    if item.many:
        assert item.default == listed(default)
        return
    assert item.default == default
    # Fractions of an epoch are allowed here.
    assert item.type is kind or (item.type, kind) == (float, int)


@pytest.mark.parametrize(("name", "kind", "default"), FASTNN, ids=text_of)
def test_a_parameter_of_fastnn(name, kind, default):
    if name in IGNORED:
        assert Settings.from_values(**{name: default}) == Settings()
        return
    item = KNOWN[name]
    assert item.type is kind
    expected = OURS.get(name, PLSC_NAMES.get(item.name, default))
    assert expected is not NO_DEFAULT
    assert item.default == (listed(expected) if item.many else expected)


@pytest.mark.parametrize("name", FASTNN_CHOICES)
def test_the_values_that_fastnn_lists_are_known(name):
    for value in FASTNN_CHOICES[name].split():
        assert KNOWN[name].parse(value) == value


def test_fastnns_defaults_are_in_their_file():
    path = ROOT / "hparams" / "fastnn_defaults.cfg"
    settings = cli.parse([f"--flagfile={path}"]).as_dict()
    differing = {}
    for name, _, default in FASTNN:
        if name in IGNORED or default in (NO_DEFAULT, None):
            continue
        item = KNOWN[name]
        expected = listed(default) if item.many else default
        if settings[item.name] != expected:
            differing[name] = settings[item.name]
    # CPUs have no arithmetic for float16, see the file.
    assert differing == {"use_fp16": False}


def test_the_defaults_of_plscs_mixed_precision():
    values = Settings().as_dict()
    assert {name: values[name] for name in PRECISION_DEFAULTS} == PRECISION_DEFAULTS


def test_two_options_of_fastnn_name_a_checkpoint():
    settings = Settings.from_values(model_dir="runs/a/", ckpt_file_name="step_00000100")
    assert settings.checkpoints.checkpoint_dir == "runs/a/step_00000100"
    assert settings.replace(seed=1).checkpoints.checkpoint_dir == "runs/a/step_00000100"
    assert cli.parse(["--model_dir=None"]) == cli.parse(["--ckpt_file_name=None"])
    with pytest.raises(ValueError, match="ckpt_file_name needs checkpoint_dir"):
        Settings.from_values(ckpt_file_name="step_00000100")
