"""The first guide, from photographs of a telephone to people with names."""

import importlib
import re
import shutil

import numpy as np
import pytest
from PIL import Image

import plsc_tf
from tests.conformance import guide_commands as guides

PAGE = guides.ROOT / "docs" / "getting_started.md"
# Whose photographs become one with two people.
GUESTS = "Elijah_Wood", "Kate_Winslet"


@pytest.fixture
def here(data_dir, tmp_path, monkeypatch):
    """The working directory, with photos/, party.jpg, my.cfg, and the lists."""
    pytest.importorskip("mtcnn")
    pytest.importorskip("aiohttp")
    for person in [p for p in (data_dir / "lfw250_sample").iterdir() if p.is_dir()]:
        shutil.copytree(person, tmp_path / "photos" / person.name)
    firsts = [min((tmp_path / "photos" / guest).iterdir()) for guest in GUESTS]
    opened = [Image.open(first).convert("RGB") for first in firsts]
    _save_turned(Image.fromarray(np.hstack(opened)), tmp_path / "party.jpg")
    _save_turned(opened[0], firsts[0])
    (config,) = guides.blocks(PAGE, "text")[1:2]
    assert "dataset_dir=faces" in config
    (tmp_path / "my.cfg").write_text(config)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _save_turned(photo, path):
    """As a telephone held upright does."""
    exif = Image.Exif()
    exif[0x0112] = 6  # the stored pixels must be turned to the right
    photo.rotate(90, expand=True).save(path, quality=95, exif=exif)


def _block(page, words):
    """The block of Python that contains some words."""
    path = PAGE.with_name(page)
    (block,) = [one for one in guides.blocks(path, "python") if words in one]
    return block


def _run(block):
    exec(compile(block, "guide.md", "exec"), {})  # noqa: S102


def test_photographs_become_names(here, capsys):
    commands = [one for one in guides.commands() if one.guide == PAGE.name]
    serve = next(i for i, one in enumerate(commands) if one.module == "serve")
    for command in commands[:serve]:
        if command.module == "evaluate":
            _run(_block("evaluation.md", "known.txt"))
        ((name, settings),) = guides.parse(command)
        try:
            importlib.import_module(f"plsc_tf.{name}").main(settings)
        except SystemExit as end:
            assert not end.code, f"{command}\n{capsys.readouterr()}"
    options = guides.parse(commands[serve])[0][1].server
    server = plsc_tf.PLSCServer(detect=options.detect).with_model(options.model_path)
    server.run(port=0, block=False)
    capsys.readouterr()
    try:
        _run(_block(PAGE.name, "encode_faces").replace("8010", str(server.port)))
    finally:
        server.stop()
    names = re.findall(r"Match\(name='(\w+)'", capsys.readouterr().out)
    assert set(names) == set(GUESTS)
