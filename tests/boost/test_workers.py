"""Two workers take the steps that two replicas of one process take."""

import pytest

from tests import programs
from tests.cluster.cluster_driver import losses

OPTIONS = (
    "--dataset_name=mock --num_classes=6 --num_sample_per_epoch=64 "
    "--image_shape=3,16,16 --model_name=iresnet --emb_size=8 "
    "--model_options=depths=1-1-1,width=8,head=gap --loss_type=dist_softmax "
    "--batch_size=8 --num_epochs=1 --lr_base_batch_size=0 --learning_rate=0.05 "
    "--nowith_test --noexport_at_end --norun_report --notensorboard --save_losses "
    "--dim_reduce_scope=all"
)
# Two replicas, and with them stage 2.
REPLICAS = f"{OPTIONS} --num_replicas=2"
STAGE_2 = "--dim_reduce --n_component=2 --checkpoint_dir=first "
STAGE_2 += "--weight_load_dir=first/snapshots"


@pytest.mark.slow
def test_workers_walk_like_replicas(tmp_path):
    for line in (
        f"train {REPLICAS} --model_save_dir=first --snapshot_every_n_steps=1",
        f"train {REPLICAS} --model_save_dir=replicas {STAGE_2}",
        "launch --num_workers=2 --log_dir=logs "
        f"-- {OPTIONS} --model_save_dir=workers {STAGE_2}",
    ):
        programs.run("-m", *f"plsc_tf.{line}".split(), cwd=tmp_path)
    runs = (losses(tmp_path / name) for name in ("workers", "replicas"))
    found, expected = (list(run.values()) for run in runs)
    assert len(found) == 4
    assert found == pytest.approx(expected, rel=1e-5)
