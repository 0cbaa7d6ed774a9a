"""What the guides show works: each command is one that the library understands.

All of them are parsed, and some are run.
"""

import ast
import functools
import importlib
import os
import pathlib
import re
import sys
import types

import pytest

import plsc_tf
from plsc_tf.data import figures
from plsc_tf.options import cli
from tests.conformance import guide_commands as guides
from tests.conformance.guide_folder import fill
from tests.seeds.plsc_folder import SMALL

ROOT = guides.ROOT
COMMANDS = guides.commands()
# Flag files that readers write themselves.
OWN_FILES = ("my.cfg", "fastnn.cfg")
# Run here in turn, in a folder with photos/, train_data/ and files of embeddings.
CHEAP = [
    (guide, line)
    for guide, start in (
        ("check.md", "python -m plsc_tf.check --dataset_name=image_list"),
        ("convert.md", "python -m plsc_tf.convert"),
        ("getting_started.md", "python -m plsc_tf.check"),
        ("getting_started.md", "python -m plsc_tf.convert"),
        ("embed.md", "python -m plsc_tf.evaluate --embeddings"),
    )
    for line in guides.lines(ROOT / "docs" / guide)
    if line.startswith(start)
]


@pytest.mark.parametrize("path", guides.GUIDES, ids=lambda path: path.name)
def test_every_command_is_understood(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hparams").symlink_to(ROOT / "hparams")
    for name in OWN_FILES:
        pathlib.Path(name).write_text("dataset_name=mock\n")
    # Pages other than the first begin with the run that it makes.
    quickstart = "output/quickstart/flags.cfg"
    known = {*OWN_FILES, quickstart}
    pathlib.Path(quickstart).parent.mkdir(parents=True)
    cli.write_flags(cli.parse([], ["dataset"]), quickstart)
    for command in COMMANDS:
        if command.guide != path.name:
            continue
        for name in guides.flag_files(command):
            assert name in known or name.startswith("hparams/"), (
                f"{command}\nnothing on the page writes {name}"
            )
        try:
            parsed = guides.parse(command)
        except (ValueError, OSError) as error:
            pytest.fail(f"{command}\n{error}")
        for module, settings in parsed:
            known.update(_writes(module, settings))


def _writes(module, settings):
    """Writes the flag file that a command leaves behind; returns its path."""
    folder = settings.checkpoints.model_save_dir
    if module != "train" or "://" in folder:
        return
    path = f"{folder}/flags.cfg"
    cli.write_flags(settings, path)
    yield path


def test_named_files_exist():
    for path in guides.GUIDES:
        text = path.read_text(encoding="utf-8")
        for name in set(re.findall(r"\b(?:hparams/\w+\.cfg|docs/\w+\.md)", text)):
            assert (ROOT / name).is_file(), f"{path.name}: {name}"
        text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", text):
            if link.startswith("http"):
                continue
            target = path.parent / link if link else path
            assert target.exists(), f"{path.name}: {link}"
            if anchor:
                assert anchor in _anchors(target), f"{path.name}: {link}#{anchor}"


def _anchors(path):
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", t.lower()).replace(" ", "-") for t in titles}


def test_every_guide_is_on_the_map():
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\]\((?:\.\./)?([\w/]+\.md)", text))
    assert {path.name for path in guides.GUIDES} - {"index.md"} <= named


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guides")
    fill(folder)
    return folder


def test_cheap_commands_run(folder, monkeypatch, capsys):
    """In this process: a start of TensorFlow takes as long as all of them."""
    monkeypatch.chdir(folder)
    assert len(CHEAP) >= 10
    for guide, line in CHEAP:
        for command in COMMANDS:
            if (command.guide, command.line) != (guide, line):
                continue
            for name in ("shards", "parts", "cleaned.txt"):
                _move_away(name, command.words)
            module = importlib.import_module(f"plsc_tf.{command.module}")
            try:
                module.main(cli.parse(list(command.words), module.GROUPS))
            except SystemExit as end:
                assert not end.code, f"{command}\n{capsys.readouterr()}"


def _move_away(name, words):
    """What an earlier page has written, where this command writes it anew."""
    if f"--output_dir={name}" in words and os.path.exists(name):
        os.rename(name, f"{name}-{len(os.listdir('.'))}")


def test_the_messages_of_troubleshooting_exist():
    """Each text in the first column is one that the library can say."""
    guide = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `(.+?)` \| ", guide, re.MULTILINE)
    assert len(messages) > 25
    said = [
        text
        for folder in ("plsc_tf", "flags", "datasets")
        for path in (ROOT / folder).rglob("*.py")
        for text in _texts(ast.parse(path.read_text(encoding="utf-8")))
    ]
    patterns = {
        message: re.compile(".*".join(map(re.escape, message.split("…"))), re.DOTALL)
        # `require` adds the period.
        for message in (one.removesuffix(".") for one in messages)
    }
    assert not [
        message
        for message, pattern in patterns.items()
        if not any(map(pattern.search, said))
    ]


def _texts(tree):
    """The texts of a module; what is put into them is "…"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value if isinstance(part, ast.Constant) else "…"
                for part in node.values
            )


def run_block(block, names):
    exec(compile(block, "guide.md", "exec"), names)  # noqa: S102


def test_scripts_from_plsc(folder, monkeypatch):
    """The page's scripts on a network that is small, as tests/seeds runs PLSC's."""
    small = types.ModuleType("plsc_tf")
    small.__dict__.update(vars(plsc_tf))
    options = {**SMALL, "num_classes": 50, "batch_size": 50}
    small.Entry = functools.partial(plsc_tf.Entry, **options)
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "plsc_tf", small)
    (folder / "dataset").symlink_to("train_data")
    pictures = [figures.draw(0, label, 0, (16, 16)) for label in range(6)]
    pairs = [(pictures[i], pictures[i // 2 * 2], i % 2 == 0) for i in range(6)] * 4
    names = {"my_pairs": pairs, "my_images": pictures}
    blocks = guides.blocks(ROOT / "docs" / "from_plsc.md", "python")
    words = ("ins.train()", "Tiny", "_read")
    train, tiny, readers = (b for b in blocks if any(word in b for word in words))
    run_block(train, names)
    assert (folder / "saved_model" / "0" / "manifest.json").is_file()
    run_block(tiny, names)
    assert names["ins"].settings.model.model_name.endswith("Tiny")
    run_block(readers, names)
    assert len(list(names["ins"].train_reader())) == 100
    names["ins"].set_checkpoint_dir("saved_model")
    names["ins"].set_model(None)
    assert names["ins"].predict().shape == (6, SMALL["emb_size"])


def test_every_setter_is_in_the_table():
    from plsc_tf import Entry
    from plsc_tf.options.settings import known_options

    text = (ROOT / "docs" / "from_plsc.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`set_.*?) \| (.*?) \|$", text, re.MULTILINE)
    named = set(re.findall(r"`(set_\w+)", " ".join(row[0] for row in rows)))
    setters = {name for name in vars(Entry) if name.startswith("set_")}
    # The manual's other name of one of them.
    assert setters - {"set_image_num"} == named
    options = set(re.findall(r"`([a-z]\w+)`", " ".join(row[1] for row in rows)))
    assert options - {"dist_"} <= set(known_options())
