"""Every parameter of FastNN's and PLSC's manuals, by name, type and default."""

import pytest
from tables import FASTNN, FASTNN_CHOICES, OURS, PLSC, rows

from plsc_tf.options import cli
from plsc_tf.options.other_systems import IGNORED
from plsc_tf.options.settings import Settings, known_options
from tests.programs import ROOT

KNOWN = known_options()
PLSC_DEFAULTS = {KNOWN[name].name: text for name, _, text in rows(PLSC)}


@pytest.mark.parametrize(("name", "kind", "default"), rows(PLSC))
def test_a_parameter_of_plsc(name, kind, default):
    item = KNOWN[name]
    assert item.default == (OURS[name] if name in OURS else item.parse(default))
    # Fractions of an epoch are allowed here.
    assert item.type is kind or (item.type, kind) == (float, int)


@pytest.mark.parametrize(("name", "kind", "default"), rows(FASTNN))
def test_a_parameter_of_fastnn(name, kind, default):
    if name in IGNORED:
        assert Settings.from_values(**{name: default}) == Settings()
        return
    item = KNOWN[name]
    assert item.type is kind
    if name in OURS:
        assert item.default == OURS[name]
    else:
        assert item.default == item.parse(PLSC_DEFAULTS.get(item.name, default))


@pytest.mark.parametrize("name", FASTNN_CHOICES)
def test_the_values_that_fastnn_lists_are_known(name):
    for value in FASTNN_CHOICES[name].split():
        assert KNOWN[name].parse(value) == value


def test_fastnns_defaults_are_in_their_file():
    path = ROOT / "hparams" / "fastnn_defaults.cfg"
    settings = cli.parse([f"--flagfile={path}"]).as_dict()
    items = {
        KNOWN[name]: text
        for name, _, text in rows(FASTNN)
        if name not in IGNORED and text not in (None, "None")
    }
    found = {item.name: settings[item.name] for item in items}
    expected = {item.name: item.parse(text) for item, text in items.items()}
    # CPUs have no arithmetic for float16, see the file.
    assert found == expected | {"use_fp16": False}


def test_two_options_of_fastnn_name_a_checkpoint():
    settings = Settings.from_values(model_dir="runs/a/", ckpt_file_name="step_00000100")
    assert settings.checkpoints.checkpoint_dir == "runs/a/step_00000100"
    assert settings.replace(seed=1).checkpoints.checkpoint_dir == "runs/a/step_00000100"
    assert cli.parse(["--model_dir=None"]) == cli.parse(["--ckpt_file_name=None"])
