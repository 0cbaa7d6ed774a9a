"""Tests the memory planner: its arithmetic, its suggestions and its command."""

import dataclasses
import functools
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf import train
from plsc_tf.heads import memory
from plsc_tf.heads.memory import HeadLoad
from plsc_tf.jobs.builders import optimizers, recipe
from plsc_tf.jobs.memory_plan import activations, planner, table
from tests.jobs import tiny_run

IRESNET = {"model_name": "iresnet", "model_options": "depths=2-2,width=8,head=gap"}
IRESNET |= {"num_classes": 50, "batch_size": 1400}
settings = functools.partial(tiny_run.settings, num_classes=1001, device_memory_gb=1.0)


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch):
    """Fixes the memory of the process, which earlier tests may have increased.

    The command plans in a fresh process.
    """
    monkeypatch.setattr(planner, "read_bytes", lambda *_: 5 * 10**8)


BASE = HeadLoad(num_classes=1000, embedding_size=8, replicas=2, global_batch=10)
load = functools.partial(dataclasses.replace, BASE, row_bytes=32, slot_bytes=32)


@pytest.mark.parametrize(
    ("options", "slots"),
    [
        ({}, 1),
        ({"optimizer": "adam"}, 2),
        ({"optimizer": "adam", "head_slot_dtype": "bfloat16"}, 1),
        ({"optimizer": "adagrad", "loss_type": "dist_softmax"}, 1),
        ({"optimizer": "rmsprop", "sample_rate": 0.1}, 2),
        ({"sub_centers": 3}, 1),
        ({"head_weight_dtype": "int8", "head_slot_dtype": "int8"}, 1),
    ],
)
def test_weights_and_slots_are_those_of_the_training(tmp_path, options, slots):
    asked = settings(tmp_path, **options)
    found, strategy = planner.plan(asked).items(), plsc_tf.strategy(2)
    model = recipe.build_model(asked, strategy, recipe.backbone_precision(asked))
    with strategy.scope():
        optimizer, l2 = optimizers.build(asked.optimizer, 0.1)
    model.compile(optimizer, l2=l2, head_slot_dtype=asked.head.head_slot_dtype)

    def held(arrays):
        return max(np.sum([rows.bytes_per_replica() for rows in arrays], axis=0))

    assert found["head weights"] == held(model.head.arrays().values())
    assert found["head slots"] == held(model.trainer.updater.slots().values())
    # The fullest replica has 501 of 1001 classes. Plain softmax has a bias too.
    numbers = 9 if "softmax" in asked.head.loss_type else 8 * asked.head.sub_centers
    packed = asked.head.head_weight_dtype == "int8"  # 8 codes and an exponent
    assert found["head weights"] == 501 * (9 if packed else 4 * numbers)
    assert found["head slots"] == slots * found["head weights"]
    trained = sum(np.prod(v.shape) for v in model.backbone.trainable_variables)
    assert found["backbone weights"] == 4 * trained
    mirrored = sum(np.prod(v.shape) for v in optimizer.variables if v.shape != ())
    assert found.get("backbone slots", 0) == 4 * mirrored


def test_a_load_by_hand():
    sampled = load(num_classes=200, sample_rate=0.05, global_batch=64)
    # If the batch is larger than the sample, the rows of the batch form one tile.
    assert (sampled.working_rows, sampled.tiles) == (64, [64])
    # A tile's logits are 200 rows of 10 numbers.
    tiled = load(num_classes=2000, tile_rows=200, logits_bytes=2 * 8000)
    assert (tiled.rows, tiled.tiles, tiled.kept_tiles) == (1000, 5 * [200], 2)
    cut = load(global_batch=10, parts=2)
    assert (cut.kept_tiles, cut.own_batch, cut.batch) == (0, 6, 12)
    whole = memory.held(load(sharded=False))
    # A replicated head computes logits of its own 5 examples with all classes.
    assert (whole["head weights"], whole["kept logits"]) == (1000 * 32, 1000 * 5 * 4)


def test_activations_of_a_network_by_hand():
    with tf.distribute.get_strategy().scope():
        image = keras.Input((4, 4, 3))
        x = keras.layers.Conv2D(5, 1, use_bias=False)(image)
        x = keras.layers.Activation("tanh")(x)
        x = keras.layers.Flatten()(x)
        network = keras.Model(image, keras.layers.Dense(2, use_bias=False)(x))
        model = plsc_tf.Classifier(network, plsc_tf.ShardedHead(1))
    found, operations = activations.trace(model, batch=7)
    # The backward pass needs the normalized image (48 numbers) and tanh's output (80).
    # At the peak, the gradients of tanh's output (80) and of its input (80) exist too.
    assert found == 7 * 4 * (48 + 80 + 80 + 80)
    assert activations.trace(model, batch=14)[0] == 2 * found
    # The images need no gradient, so there are two convolutions and three products.
    flops, moved, kinds = zip(*activations.kernels(operations), strict=True)
    assert sorted(flops) == 3 * [7 * 2 * 80 * 2] + 2 * [7 * 2 * 80 * 3]
    assert moved[0] == 4 * (7 * 48 + 15 + 7 * 80) and set(kinds) == {"float32"}


def test_a_plan_includes_the_making_of_the_weights(tmp_path):
    # Partial FC with more rows than are initialized at a time, or a small head, one
    # tile: the device holds zeros and their copy, the host numpy's parts.
    job = planner.plan(settings(tmp_path, num_replicas=1))
    head = load(num_classes=400_000, replicas=1, row_bytes=1000, sample_rate=0.1)
    assert memory.making(head) == (2 * 400_000 * 1000, 3 * 16_384 * 1000)
    small = load(num_classes=3000, replicas=1)
    assert memory.making(small) == (2 * 3000 * 32, 3 * 3000 * 32)
    job = dataclasses.replace(job, head=dataclasses.replace(head, slot_bytes=0))
    assert job.total() == job.initialization_bytes() > sum(job.items().values())
    assert "more than a step needs" in table.text(job)


@pytest.mark.parametrize("replicas", [1, 4])
def test_the_fullest_moment_of_a_head_by_hand(replicas):
    # Three tiles of 1000 classes; 1 MB of weights per tile.
    tiles = {"num_classes": 3000 * replicas, "tile_rows": 1000, "logits_bytes": 0}
    tiles |= {"row_bytes": 1000, "slot_bytes": 1000}
    head = load(replicas=replicas, global_batch=replicas, embedding_size=1, **tiles)
    held = memory.held(head)
    assert (held["head weights"], held["head slots"]) == (3000 * 1000, 3000 * 1000)
    # An uncompiled second pass: six tensors of products, the gradient, and three
    # tensors of new values.
    expected = 6 * 1000 * 4 * replicas + (3 + 1) * 1000 * 1000
    assert memory.second_pass(head) == expected > memory.first_pass(head)
    # On a GPU, half precision halves the products; the weights are cast, too.
    half = dataclasses.replace(head, half=True, device_kind="GPU")
    expected = 6 * 1000 * 2 * replicas + (3 + 1) * 1000 * 1000 + 1000 * 500
    assert memory.second_pass(half) == expected


def test_parts_repeat_the_graph_and_shrink_the_activations(tmp_path):
    asked = {**IRESNET, "num_classes": 1001, "batch_size": 64, "num_replicas": 1}
    job = planner.plan(settings(tmp_path, **asked))
    jobs = job, job.with_head(global_batch=32), job.with_head(parts=4)
    whole, half, parts = (one.items() for one in jobs)
    assert whole["activations"] == job.backbone.activations
    assert half["activations"] == pytest.approx(whole["activations"] / 2, rel=0.01)
    assert parts["activations"] == pytest.approx(whole["activations"] / 4, rel=0.01)
    assert parts["programs"] > whole["programs"]


@pytest.mark.parametrize("loss", ["softmax", "dist_softmax"])
def test_mixed_images_meet_the_classes_once_with_each_label(tmp_path, loss):
    asked = settings(tmp_path, loss_type=loss)
    plain, mixed = (planner.plan(asked.replace(mixup=share)) for share in (0.0, 0.2))
    # Rows on a replica x images compared with them x 4 bytes.
    logits = {"softmax": 1001 * 5 * 4, "dist_softmax": 501 * 10 * 4}[loss]
    assert memory.held(plain.head)["kept logits"] == logits
    assert memory.held(mixed.head)["kept logits"] == 2 * logits
    assert mixed.head.own_batch == plain.head.own_batch


def test_about_the_largest_number_of_classes_that_fits(tmp_path):
    def plan(**changes):
        return planner.plan(settings(tmp_path, **changes))

    most = plan().most_classes()
    assert plan(num_classes=most).fits()
    assert not plan(num_classes=int(1.1 * most)).fits()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"num_classes": 12_000_000},
            {"head_logits_mb", "head_slot_dtype", "num_replicas"},
        ),
        (
            {"num_classes": 2_000_000, "emb_size": 256, "device_memory_gb": 1.3},
            {"head_weight_dtype", "head_slot_dtype", "num_replicas"},
        ),
        (
            {"num_classes": 1_000_000, "batch_size": 256, "device_memory_gb": 0.98},
            {"head_logits_mb"},
        ),
        (
            {"num_classes": 50, "batch_size": 6000, "device_memory_gb": 1.2},
            {"gradient_accumulation_steps", "num_replicas"},
        ),
        (
            {**IRESNET, "device_kind": "l4", "device_memory_gb": 0.2},
            {"gradient_accumulation_steps", "recompute"},
        ),
        ({"loss_type": "arcface", "num_classes": 8_000_000}, {"loss_type"}),
    ],
)
def test_every_suggestion_fits_when_it_is_planned(tmp_path, options, expected):
    asked = settings(tmp_path, **options)

    job = planner.plan(asked)
    assert not job.fits()
    found = table.suggestions(job)
    assert expected <= {name for options, _ in found for name in options}
    for options, suggested in found:
        again = planner.plan(asked.replace(**options))
        assert again.fits()
        assert again.total() == pytest.approx(suggested.total(), rel=0.01)


def test_nothing_is_suggested_that_does_not_help(tmp_path):
    job = planner.plan(settings(tmp_path, device_memory_gb=0.1))
    assert job.most_classes() == 0
    assert table.suggestions(job) == []
    assert "fewer classes or more memory" in table.text(job)


def status_of(asked):
    with pytest.raises(SystemExit) as caught:
        train.main(asked)
    return caught.value.code


def test_the_command_plans_and_touches_nothing(tmp_path, capsys):
    asked = settings(tmp_path / "run", dry_run=True)
    assert status_of(asked) == 0
    out = capsys.readouterr().out
    assert "{" not in out
    assert status_of(asked.replace(json=True)) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["fits"] and summary["total_bytes"] == sum(summary["bytes"].values())
    assert summary["device_bytes"] == 10**9
    for words in ("501 of 1,001 classes", "momentum: 1 x", "fits", "all-reduce"):
        assert words in out
    assert not any(tmp_path.iterdir())
    assert status_of(asked.replace(num_classes=100_000_000)) == 1
    assert "does NOT fit" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"num_classes": 1}, "at least one row"),
        ({"gradient_accumulation_steps": 6}, "needs an image per part and replica"),
        ({"weight_decay_on": ("nosuch:0",)}, "weight_decay_on must match a layer"),
    ],
)
def test_what_a_training_refuses_is_not_planned(tmp_path, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        planner.plan(settings(tmp_path, **options))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["kept", "partial", "iresnet18"])
def test_the_plan_is_right_within_a_tenth(case):
    from benchmarks import planner as comparison

    found = comparison.compare(case, steps=8)
    assert abs(found["error"]) < 0.1
    assert abs(found["own_error"]) < 0.1
