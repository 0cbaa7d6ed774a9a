"""A student learns from a teacher: losses, gradients, commands, and what is refused."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import plsc_tf
from plsc_tf.checkpoints import manifest
from plsc_tf.data.images import resize
from plsc_tf.jobs import origins
from plsc_tf.training.distillation import Distillation, Teacher
from plsc_tf.training.loss_scale import LossScale
from tests import commands
from tests.jobs.tiny_run import TINY, as_flags
from tests.networks import compiled, flat, head_scores

IMAGES = np.random.default_rng(0).integers(0, 256, (8, 2, 2, 3)).astype(np.uint8)
PIXELS = (IMAGES.reshape(8, 12) - 127.5) / 128
LABELS = np.arange(8) % 5
# The last but one does not count.
WEIGHTS = np.array([1, 0.5, 1, 2, 1, 1, 0, 1], np.float32)
# What two replicas work on at a time, each on one half of the batch.
HALVES = [[0, 1, 4, 5], [2, 3, 6, 7]]


def oracle(kind, rows, target, weights):
    """The loss of float64 embeddings, by the formulas of the module."""
    s, t = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (rows, target))
    if kind == "embedding":
        return (weights * (1 - (s * t).sum(axis=1))).sum()
    pairs = np.outer(weights, weights) * (1 - np.eye(len(s)))
    pairs /= pairs.sum()
    s, t = (np.linalg.norm(x[:, None] - x, axis=2) for x in (s, t))
    x = np.abs(s / (pairs * s).sum() - t / (pairs * t).sum())
    return weights.sum() * (pairs * np.where(x < 1, x**2 / 2, x - 0.5)).sum()


def slope(function, at, step=1e-5):
    """The gradient of a function of an array, by central differences."""
    moves = step * np.eye(at.size).reshape(-1, *at.shape)
    slopes = [(function(at + m) - function(at - m)) / (2 * step) for m in moves]
    return np.reshape(slopes, at.shape)


def student(distillation, replicas=1, head=None, **options):
    """A compiled classifier of one matrix."""
    return compiled(
        lambda: flat((2, 2, 3), keras.layers.Dense(4, use_bias=False)),
        head or plsc_tf.ShardedHead(5, scale=8.0),
        replicas,
        lambda: plsc_tf.Momentum(0.1, momentum=0.0, l2=0.0),
        distillation=distillation,
        **options,
    )


@pytest.mark.parametrize("kind", ["embedding", "relational"])
@pytest.mark.parametrize(
    ("replicas", "size", "options"),
    [
        (1, 4, {"loss_scale": 1024.0}),
        (2, 6, {}),
        (2, 6, {"gradient_accumulation_steps": 2}),
        (1, 6, {"jit_compile": True}),
    ],
)
def test_loss_and_gradients_are_those_of_the_oracle(kind, replicas, size, options):
    parts = HALVES if "gradient_accumulation_steps" in options else [range(8)]
    options = {k: LossScale(v) if k == "loss_scale" else v for k, v in options.items()}
    # The teacher takes the same images in another size.
    theirs = np.random.default_rng(1).normal(size=(48, size)).astype(np.float32)

    def embed(images):
        return tf.matmul(tf.reshape(images, [-1, 48]) - 127.5, theirs)

    target = embed(tf.cast(resize(IMAGES, (4, 4)), tf.float32)).numpy().astype("f8")

    def expected(kernel, matrix=None):
        own = PIXELS @ kernel if matrix is None else PIXELS @ kernel @ matrix
        return 3 * sum(oracle(kind, own[i], target[i], WEIGHTS[i] / 8) for i in parts)

    distillation = Distillation(Teacher(embed, (4, 4, 3), size), kind, weight=3.0)
    model, alone = (student(d, replicas, **options) for d in (distillation, None))
    weights = model.trained_network_variables()
    assert len(weights) == 1 + (kind == "embedding" and size == 6)
    before = [weight.numpy().astype(np.float64) for weight in weights]
    found = model.train_on_batch(IMAGES, LABELS, WEIGHTS)
    rest = alone.train_on_batch(IMAGES, LABELS, WEIGHTS)
    assert found["distillation"] == pytest.approx(expected(*before), rel=1e-5)
    assert found["loss"] == pytest.approx(rest["loss"] + found["distillation"])
    others = [alone.trained_network_variables()[0].numpy(), *before[1:]]
    for i, at in enumerate(before):
        gradient = slope(lambda x, i=i: expected(*before[:i], x, *before[i + 1 :]), at)
        moved = weights[i].numpy() - others[i]
        np.testing.assert_allclose(moved, -0.1 * gradient, rtol=1e-3, atol=1e-6)


def log_probabilities(rows, head, factor):
    """By definition, of all classes."""
    scale = head.scale if head.loss.normalized else 1.0
    logits = scale * head_scores(head, rows) / factor
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("kind", "loss", "replicas"),
    [
        (plsc_tf.ShardedHead, plsc_tf.ARCFACE, 2),
        (plsc_tf.ShardedHead, plsc_tf.SOFTMAX, 1),
        (plsc_tf.DenseHead, plsc_tf.ARCFACE, 2),
    ],
)
def test_logits_of_all_classes_tile_by_tile(kind, loss, replicas):
    """Seven classes, in tiles of two; the class weights learn from the labels alone."""
    theirs = np.random.default_rng(1).normal(size=(12, 6)).astype(np.float32)
    tiles = {"tile_rows": 2} if kind is plsc_tf.ShardedHead else {}
    heads = [kind(7, loss=loss, scale=s, **tiles) for s in (8.0, 8.0, 5.0)]
    heads[2].build(6, plsc_tf.strategy(replicas))
    heads[2].set_weights_from_numpy(np.random.default_rng(2).normal(size=(7, 6)))

    def embed(images):
        return tf.matmul((tf.reshape(images, [-1, 12]) - 127.5) / 128, theirs)

    distillation = Distillation(Teacher(embed, (2, 2, 3), 6, heads[2]), "logits", 3.0)
    options = (distillation, heads[0]), (None, heads[1])
    model, alone = (student(d, replicas, head) for d, head in options)
    for name, rows in model.head.arrays().items():
        if name == "bias":
            for one in (rows, alone.head.arrays()[name], heads[2].arrays()[name]):
                one.write(0, np.linspace(-1, 1, 7, dtype=np.float32))
    target = log_probabilities(PIXELS @ theirs.astype(np.float64), heads[2], 4.0)
    before = model.backbone.layers[-1].kernel.numpy().astype(np.float64)

    def expected(kernel):
        own = log_probabilities(PIXELS @ kernel, alone.head, 4.0)
        losses = (np.exp(target) * (target - own)).sum(axis=1)
        return 3 * 16 * (WEIGHTS / 8 * losses).sum()

    value, gradient = expected(before), slope(expected, before)
    found = model.train_on_batch(IMAGES, LABELS, WEIGHTS)
    alone.train_on_batch(IMAGES, LABELS, WEIGHTS)
    assert found["distillation"] == pytest.approx(value, rel=1e-4)
    moved = np.subtract(*(m.backbone.layers[-1].kernel.numpy() for m in (model, alone)))
    np.testing.assert_allclose(moved, -0.1 * gradient, rtol=2e-3, atol=1e-5)
    rows = (m.head.weights_as_numpy() for m in (model, alone))
    np.testing.assert_allclose(*rows, atol=1e-6)


def test_a_teacher_of_other_channels_is_refused():
    with pytest.raises(ValueError, match="images of 3 channels. Received: .*1"):
        student(Distillation(Teacher(None, (2, 2, 1), 4), "embedding"))


def test_a_teacher_that_is_not_finite_is_named():
    teacher = Teacher(lambda images: np.nan * images[:, 0, 0], (2, 2, 3), 3)
    with pytest.raises(FloatingPointError, match="loss of the distillation"):
        student(Distillation(teacher, "embedding")).train_on_batch(IMAGES, LABELS)


def train(folder, **changes):
    """Runs the command; returns its errors and the losses of all steps so far."""
    options = {**TINY, "emb_size": 6, "save_losses": True, "model_save_dir": folder}
    done = commands.run("train", *as_flags(options | changes), folder=folder.parent)
    lines = (folder / "losses.txt").read_text().splitlines() if not done.status else ()
    return done.err, [float.fromhex(line.split()[1]) for line in lines]


def test_a_resumed_student_of_a_checkpoint_is_the_same(finished_run, tmp_path):
    """And another teacher is refused."""
    options = {"teacher": finished_run.folder, "distill": "embedding", "dropout": 0.3}
    _, whole = train(tmp_path / "whole", **options)
    train(tmp_path / "parts", stop_at_step=7, **options)
    assert train(tmp_path / "parts", **options)[1] == whole
    rows = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["distillation"] > 0
    said, _ = train(tmp_path / "parts", **options | {"teacher": "another"})
    assert f"was trained with teacher={finished_run.folder}. Received: " in said


def test_logits_of_a_checkpoint(finished_run, tmp_path):
    """Those of a teacher with other classes, or without class weights, are refused."""
    options = {"distill": "logits", "stop_at_step": 2}
    said, found = train(tmp_path / "a", teacher=finished_run.folder, **options)
    assert len(found) == 2 and np.isfinite(found).all(), said
    options |= {"num_classes": 8, "num_sample_per_epoch": 48, "num_replicas": 1}
    for path, words in (("", "classes of the student"), ("export", "class weights")):
        said, _ = train(tmp_path / "b", teacher=finished_run.folder / path, **options)
        assert words in said


def test_an_export_teaches_the_same_as_its_checkpoint(finished_run, tmp_path):
    options = {"distill": "relational", "stop_at_step": 2}
    paths = {"a": finished_run.folder / "1", "b": finished_run.folder / "export"}
    runs = [train(tmp_path / name, teacher=p, **options) for name, p in paths.items()]
    assert runs[0][1] == pytest.approx(runs[1][1], rel=1e-5)
    assert len(runs[0][1]) == 2
    state = manifest.read(str(tmp_path / "b" / "step_00000002"))["state"]
    assert {"kind": "model", "name": "export"} in state["origins"]
    # An export is a program, which a stranger's checkpoint must not bring along.
    (finished_run.folder / "1" / "saved_model.pb").touch()
    assert origins.find_exports(str(finished_run.folder)) == {}
    assert origins.find_exports(str(finished_run.folder / "1")) == {}
    (finished_run.folder / "1" / "saved_model.pb").unlink()
    # Nor may a damaged one, which may lack its manifest.
    for number, name in enumerate(("1/manifest.json", "step_00000001/rows")):
        for one in (name, "2/saved_model.pb"):
            (tmp_path / f"c{number}" / one).parent.mkdir(parents=True)
            (tmp_path / f"c{number}" / one).touch()
        assert origins.find_exports(str(tmp_path / f"c{number}")) == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"distill": None}, "Set teacher and distill together"),
        ({"teacher": ""}, "Set teacher and distill together"),
        ({"teacher": "none"}, "teacher must be a checkpoint, an export or an ONNX"),
        ({"teacher": "."}, "'.' is not a checkpoint"),
        ({"teacher": "a.txt"}, "Cannot tell whether a.txt is a checkpoint"),
        ({"teacher": "foreign"}, "foreign must be an export of plsc_tf"),
    ],
)
def test_what_is_no_teacher_is_refused(tmp_path, changes, words):
    (tmp_path / "a.txt").write_text("no network")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "saved_model.pb").write_bytes(b"")
    options = {"teacher": "x", "distill": "embedding", "num_replicas": 1}
    assert words in train(tmp_path / "run", **options | changes)[0]
