"""Every parameter of FastNN's and PLSC's manuals, by name, type and default."""

import pathlib
import tomllib

import pytest

from plsc_tf.options import cli
from plsc_tf.options.other_systems import IGNORED
from plsc_tf.options.settings import Settings, known_options
from tests.programs import ROOT

# Where the default here is neither PLSC's nor FastNN's, and why.
OURS = {
    # Each loss has its own margin; None is 0.5 for PLSC's.
    "margin": None,
    # PLSC's 512 and 3,112,112 for face networks.
    "emb_size": None,
    "image_shape": (),
    # Empty texts and lists stand for None.
    "model_dir": "",
    "train_files": (),
    # PLSC's optimizer and schedule, which its manual describes in words.
    "optimizer": "momentum",
    "weight_decay": 5e-4,
    "learning_rate_decay_type": "piecewise",
    "learning_rate_decay_factor": 0.1,
    "warmup_scheme": "linear",
    "decay_scheme": None,
    # PLSC trains for epochs and in float32.
    "stop_at_step": 0,
    "use_fp16": False,
}
TYPES = {kind.__name__: kind for kind in (str, int, float, bool)}
KNOWN = known_options()
TABLES = tomllib.loads(pathlib.Path(__file__).with_name("tables.toml").read_text())
CHOICES = TABLES["fastnn_choices"]


def rows(name):
    """Returns [(name, type, default as text; None without one)] of a table."""
    table = TABLES[name].items()
    words = [(word, TYPES[kind]) for kind, text in table for word in text.split()]
    split = [(*word.partition("="), kind) for word, kind in words]
    return [(name, kind, text if sign else None) for name, sign, text, kind in split]


PLSC_DEFAULTS = {KNOWN[name].name: text for name, _, text in rows("plsc")}


@pytest.mark.parametrize(("name", "kind", "default"), rows("plsc"))
def test_a_parameter_of_plsc(name, kind, default):
    item = KNOWN[name]
    assert item.default == (OURS[name] if name in OURS else item.parse(default))
    # Fractions of an epoch are allowed here.
    assert item.type is kind or (item.type, kind) == (float, int)


@pytest.mark.parametrize(("name", "kind", "default"), rows("fastnn"))
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


@pytest.mark.parametrize("name", CHOICES)
def test_the_values_that_fastnn_lists_are_known(name):
    for value in CHOICES[name].split():
        assert KNOWN[name].parse(value) == value


def test_fastnns_defaults_are_in_their_file():
    path = ROOT / "hparams" / "fastnn_defaults.cfg"
    settings = cli.parse([f"--flagfile={path}"]).as_dict()
    items = {
        KNOWN[name]: text
        for name, _, text in rows("fastnn")
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
