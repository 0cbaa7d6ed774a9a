"""Both stages as the command runs them."""

import dataclasses

import numpy as np
import pytest

from plsc_tf.checkpoints import catalog
from plsc_tf.jobs import train as run
from plsc_tf.jobs.memory_plan import planner, table
from plsc_tf.jobs.parts import Parts
from plsc_tf.options.settings import Settings
from tests.cluster.plain_network import network
from tests.jobs.tiny_run import TINY
from tests.reporting.conftest import rows_of

COMMON = {
    **TINY,
    "num_classes": 4,
    "num_sample_per_epoch": 64,
    "num_replicas": 1,
    "batch_size": 16,
    "loss_type": "dist_softmax",
    "val_targets": (),
    "dropout": None,  # networks in Python take none
}


def train(**values):
    settings = Settings.from_values(**{**COMMON, **values})
    return run.train(settings, parts=Parts(backbone=network))[1]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The folder of a stage 1 with eight snapshots."""
    folder = tmp_path_factory.mktemp("run") / "stage_1"
    options = {"snapshot_every_n_steps": 1, "dim_reduce_scope": "all"}
    assert train(model_save_dir=str(folder), **options)["steps"] == 8
    return folder


def second(first, folder, **values):
    given = {"dim_reduce": True, "dim_reduce_scope": "all", "n_component": 4}
    given |= {"checkpoint_dir": str(first), "model_save_dir": str(folder)}
    return train(**{**given, "weight_load_dir": f"{first}/snapshots", **values})


def test_both_stages(first, tmp_path):
    snapshots = catalog.find_all(str(first / "snapshots"))
    assert [step for step, _ in snapshots] == list(range(1, 9))
    folder = tmp_path / "stage_2"
    outcome = second(first, folder, num_epochs=1)
    assert [row["step"] for row in rows_of(folder, "line_search.jsonl")] == [1, 2, 3, 4]
    assert outcome["steps"] == 4
    assert np.load(folder / "pca_mat.npy").shape[0] == 4
    # The projection serves another run, without the snapshots.
    made = (folder / "pca_mat.npy").stat().st_mtime_ns
    made_before = {"weight_load_dir": "", "pca_mat_path": str(folder / "pca_mat.npy")}
    again = second(first, tmp_path / "again", num_epochs=1, **made_before)
    assert again["loss"] == pytest.approx(outcome["loss"], rel=1e-6)
    # And the run itself, when it goes on.
    assert second(first, folder, num_epochs=2)["steps"] == 8
    assert (folder / "pca_mat.npy").stat().st_mtime_ns == made
    assert len(rows_of(folder, "line_search.jsonl")) == 8


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n_component": 8}, "at least 9 snapshots"),
        ({"n_component": 1 << 40}, r"needs [\d,]+ bytes .* weights="),
        ({"ema_decay": 0.9}, "does not support ema_decay"),
        ({"weight_decay_on": ("stem:0.1",)}, "support weight_decay_on.*=stem:0.1"),
        ({"head_weight_decay": 0.1}, "support head_weight_decay.*=0.1"),
        (
            {"sample_rate": 0.5, "loss_type": "dist_arcface"},
            "all does not support sample_rate",
        ),
        ({"emb_size": 9}, "belongs to another model"),
        (
            {"weight_load_dir": "", "pca_mat_path": "none.npy"},
            "'none.npy' does not exist",
        ),
    ],
)
def test_errors_come_before_the_training(first, tmp_path, values, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        second(first, tmp_path / "stage_2", **values)
    assert not catalog.find_all(str(tmp_path / "stage_2"))


def test_the_plan_of_the_memory_counts_the_space(tmp_path):
    values = {"num_replicas": 2, "model_save_dir": str(tmp_path), "n_component": 4}
    values |= {"model_name": "iresnet", "dim_reduce": True, "dim_reduce_scope": "all"}
    values |= {"model_options": "depths=1-1-1,width=8,head=gap"}
    settings = Settings.from_values(**COMMON | values, weight_load_dir="snapshots")
    job = planner.plan(settings)
    found = job.items()
    # Half of k columns and of the residual, of all weights, and what P is made in.
    backbone = job.backbone.weights // 4
    size = backbone + 4 * (8 + 1)
    assert found["projection"] == 4 * (4 + 1) * size // 2 + 4 * 4 * size // 2
    assert found["path"] == 4 * (3 * size + 2 * 4 * backbone) // 2
    assert not {"backbone slots", "head slots"} & set(found)
    added = found["projection"] + found["path"]
    ordinary = dataclasses.replace(job, settings=settings.replace(dim_reduce=False))
    assert sum(found.values()) == sum(ordinary.items().values()) + added
    assert "stage 2: the columns of P" in table.text(job)
    many = settings.replace(n_component=1 << 40)
    assert job.fits() and not dataclasses.replace(job, settings=many).fits()
