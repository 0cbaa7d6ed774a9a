"""Options that were given and have no effect are told, whichever they are."""

import ast
import re

import pytest

from plsc_tf import check
from plsc_tf.__main__ import COMMANDS
from plsc_tf.flags import conditions
from plsc_tf.options import cli, effects
from plsc_tf.options.settings import Settings, known_options, select
from tests import commands
from tests.conformance import options_guide
from tests.jobs.tiny_run import TINY, as_flags
from tests.programs import ROOT
from tests.seeds.commands import class_folders

OPTIONS = sorted({item for item in known_options().values()}, key=lambda i: i.name)


@pytest.mark.parametrize("item", OPTIONS, ids=lambda item: item.name)
def test_conditions_name_options_and_facts(item):
    for terms in conditions.parse(item.applies):
        for term in terms:
            name = conditions.name_in(term)
            if name in conditions.FACTS:
                continue
            option = known_options()[name]
            assert option.name == name != item.name
            for value in term.partition("=")[2].split(",") if "=" in term else ():
                if option.choices and "*" not in value:
                    names = {n.removeprefix("dist_") for n in option.choices}
                    assert value in names | set(option.choices)


@pytest.mark.parametrize("command", COMMANDS)
def test_options_that_a_command_does_not_use_are_refused(command):
    groups = options_guide.groups_of(command)
    used = {item.name for item in select(groups)} | {"protocol"}  # also FastNN's
    refused = [item for item in OPTIONS if item.name not in used]
    # Parsing takes time: all of them for one command, and some for the others.
    for item in refused if command == "serve" else refused[::20]:
        with pytest.raises(cli.UsageError, match="no effect on this command"):
            cli.parse([f"--{item.name}={item.format(item.default)}"], groups)


@pytest.mark.parametrize(
    ("condition", "facts", "holds"),
    [
        ("", {}, True),
        ("card_dir", {}, True),
        ("no card_dir", {}, False),
        ("optimizer=adam,sgd", {}, True),
        ("no optimizer=ad*", {}, True),
        ("loss_type=arcface", {}, True),
        ("loss_type=dist_*", {}, True),
        ("sample_rate<1", {}, True),
        ("sample_rate>=0.5", {}, False),
        ("card_dir and cluster", {}, True),
        ("card_dir and cluster", {"cluster": True}, True),
        ("sample_rate=1.0 or no cluster", {"cluster": False}, True),
    ],
)
def test_conditions(condition, facts, holds):
    values = {"card_dir": "card", "optimizer": "sgd", "loss_type": "dist_arcface"}
    assert conditions.holds(condition, {**values, "sample_rate": 0.2}, facts) is holds


LARS = {"momentum": 0.8, "lars_coefficient": 0.01}
SPARED = {"weight_decay": 0.0, "no_weight_decay_on": ("norms",)}


@pytest.mark.parametrize(
    ("values", "idle"),
    [
        # An option that asks for nothing is not told.
        ({"ftrl_l1": 0.0, "adam_beta1": 0.9, "calc_acc": False}, ["adam_beta1"]),
        ({"adam_beta1": 0.9, "optimizer": "adam"}, []),
        ({**LARS, "optimizer": "lars"}, []),
        (LARS, ["lars_coefficient"]),
        # Weights are spared from any decay.
        (SPARED, ["no_weight_decay_on"]),
        ({**SPARED, "weight_decay_on": ("conv1:0.1",)}, []),
        ({**SPARED, "head_weight_decay": 0.1}, []),
    ],
)
def test_what_has_no_effect(values, idle):
    settings, facts = Settings.from_values(**values), {"own_optimizer": False}
    early = effects.unused(settings, groups=cli.ALL)
    late = effects.unused(settings, facts, cli.ALL)
    assert [name for name, _ in (*early, *late)] == idle


@pytest.mark.parametrize(
    "path", sorted((ROOT / "hparams").glob("*.cfg")), ids=lambda path: path.name
)
def test_our_own_files_hold_nothing_without_effect(path):
    groups = options_guide.groups_of("train")
    settings = cli.parse([f"--flagfile={path}"])
    names = {name for name, _ in effects.unused(settings, None, groups)}
    names -= settings.ignored
    # FastNN's warm-up begins when warmup_steps is added to its defaults.
    assert names <= ({"warmup_scheme"} if path.stem == "fastnn_defaults" else set())


def test_every_option_is_read_somewhere():
    read = set()
    for path in [*(ROOT / "plsc_tf").rglob("*.py"), *(ROOT / "flags").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute):
                read.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                read.add(node.value)
    # It has no effect but that its condition refuses other values.
    read.add("job_name")
    # The augmentation's fields have the options' names without "random_".
    names = {item.name for item in OPTIONS if not item.run_check}
    assert not [n for n in names - read if n.removeprefix("random_") not in read]


def test_the_guide_is_made_from_the_options():
    assert options_guide.PATH.read_text() == options_guide.text(), (
        "run python -m tests.conformance.options_guide"
    )


TOLD = {
    "in a cluster of several processes": (
        "communication=ring worker_timeout=3 join_timeout=9 node_port=7000"
    ),
    "for class folders without a fixed test split": "held_back=0.1",
    "for data whose files hold the labels as numbers": "labels_offset=1",
    "for data that can only be read in order": "shuffle_buffer_size=5",
    "with several GPUs, or in a cluster": "gradient_bucket_mb=3",
    "on GPUs": "tf32=false",
    "with several replicas": "gradient_dtype=float16 synchronized_batch_norm=true",
    "for networks with auxiliary logits": "aux_logits_weight=0.3",
    "where images come from files": "dataset_dir=nowhere",
    "with optimizer=adam or adamweightdecay": "adam_beta1=0.3 adam_beta2=0.8",
    "with use_fp16": "init_loss_scaling=8 decr_ratio=0.3",
    "with use_fp16, or with use_bf16": "amp_lists=black:Conv2D",
    "with loss_type=adaface": "adaface_h=0.2",
    "with learning_rate_decay_type=polynomial": "polynomial_power=2",
    "with dim_reduce, or with boost_config_dict": "boost_level=o1",
    "with dim_reduce": "n_component=4",
    "with dry_run": "device_memory_gb=3 device_kind=l4",
    "where a training run is resumed": "allow_changes=scale",
    "with export_at_end": "proof_pairs=10",
}


def test_a_training_says_which_options_do_nothing(tmp_path):
    small = {**TINY, "num_replicas": 1, "num_epochs": 1, "model_save_dir": "run"}
    small |= {"val_targets": "", "preprocessing_name": None}
    words = [f"--{word}" for word in " ".join(TOLD.values()).split()]
    done = commands.run("train", *as_flags(small), *words, folder=tmp_path)
    assert done.status == 0, done.err
    said = {}
    for line in done.err.splitlines():
        if "No effect here: " in line:
            part = line.partition("No effect here: ")[2]
            for names, why in re.findall(r"([\w, ]+) \(only (.*?)\)(?:; |\.$)", part):
                said[why] = set(names.split(", "))
    assert said == {
        why: {word.partition("=")[0] for word in words.split()}
        for why, words in TOLD.items()
    }


def test_other_commands_say_it_too(tmp_path, caplog, capsys):
    class_folders(tmp_path, classes=2, images=2)
    words = ["--dataset_name=folder", f"--dataset_dir={tmp_path}", "--labels_offset=1"]
    caplog.set_level("INFO")
    with pytest.raises(SystemExit):
        check.main(cli.parse(words, check.GROUPS))
    assert (
        "No effect here: labels_offset (only for data whose files hold the labels as "
        "numbers)." in caplog.messages
    )
