"""Every hyper-parameter file parses, and says what to expect of it."""

import re

import pytest

from plsc_tf.options import cli
from tests.programs import ROOT

FILES = sorted((ROOT / "hparams").glob("*.cfg"))


every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)


def header(path):
    """Returns the comment lines at the top of a file, joined."""
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return "\n".join(lines)


@every_file
def test_the_file_parses_and_can_be_repeated(path, tmp_path):
    settings = cli.parse([f"--flagfile={path}"])
    cli.write_flags(settings, tmp_path / "flags.cfg")
    assert cli.parse([f"--flagfile={tmp_path / 'flags.cfg'}"]) == settings


@every_file
def test_the_header_tells_command_hardware_time_and_score(path):
    text = header(path)
    for topic in ("command", "hardware", "time", "score"):
        assert re.search(rf"^{topic}:\s*\S", text, re.MULTILINE | re.IGNORECASE), topic
    assert "TODO" not in text
    assert f"--flagfile=hparams/{path.name}" in text
    # No option is set twice.
    options = re.findall(r"^(?:--)?(\w+)\s*=", path.read_text(), re.MULTILINE)
    assert len(options) == len(set(options))


@pytest.mark.parametrize(
    ("name", "classes", "loss"),
    [
        ("ms1mv2", 85742, "dist_arcface"),
        ("ms1mv3", 93431, "dist_arcface"),
        ("glint360k", 360232, "dist_cosface"),
        ("webface12m", 617970, "dist_cosface"),
    ],
)
def test_the_recipes_of_faces_are_arcface_torchs(name, classes, loss):
    path = FILES[0].parent / f"{name}.cfg"
    text = header(path).replace("\\\n", "")
    # Command lines of four networks, each with a folder of its own.
    others = re.findall(r"^\s*(--\S*(?:iresnet100|mobilefacenet|vit_s).*)$", text, re.M)
    others = [line.replace("=hparams/", f"={path.parent}/") for line in others]
    words = [[], *map(str.split, others)]
    runs = [cli.parse([f"--flagfile={path}", *own]).as_dict() for own in words]
    networks = ["iresnet50", "iresnet100", "mobilefacenet", "vit_s"]
    assert [run["model_name"] for run in runs] == networks
    assert len({run["model_save_dir"] for run in runs}) == 4
    expected = {"num_classes": classes, "loss_type": loss, "emb_size": 512, "scale": 64}
    expected |= {"learning_rate_decay_type": "polynomial", "use_fp16": True}
    expected |= {"lr_base_batch_size": 0, "learning_rate": 0.1}
    expected |= {"global_batch_size": 1024}
    vit = {"learning_rate": 0.001, "global_batch_size": 24576}
    for run in runs:
        wanted = expected | vit if run["model_name"] == "vit_s" else expected
        assert {name: run[name] for name in wanted} == wanted
    for network in networks:
        assert re.search(rf"^\s*{network}\s+(\d\d\.\d\d|none published)", text, re.M)
