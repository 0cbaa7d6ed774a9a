"""Tests plans for GPUs that this machine does not have."""

import dataclasses
import json

import pytest

from plsc_tf.jobs.memory_plan import planner, step_time, table
from plsc_tf.parallel.gpu_figures import Gpu
from tests.jobs.test_planner import load, settings, status_of


def test_a_plan_for_gpus_that_this_machine_does_not_have(tmp_path, capsys):
    gpus = {"device_kind": "A100-80", "device_memory_gb": None, "num_replicas": 8}
    asked = settings(tmp_path, dry_run=True, json=True, num_classes=10_000_000, **gpus)
    assert status_of(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["device"], found["replicas"]) == ("GPU", 8)
    assert found["device_name"] == "NVIDIA A100-SXM4-80GB"
    assert found["device_bytes"] == 79_188 * 2**20
    # Two tiles of about 256 MB; embeddings of 8 numbers count as 128.
    assert found["tiles"]["rows"] == 625_000
    assert not {"programs", "TensorFlow", "input pipeline"} & set(found["bytes"])
    again = planner.plan(asked.replace(batch_size=found["most_images"]))
    assert again.fits()
    assert not again.with_head(global_batch=9 * found["most_images"]).fits()
    seconds = found["step_seconds"]
    given = planner.plan(asked.replace(device_memory_gb=0.05))
    assert given.devices.bytes == 5 * 10**7 and not given.fits()
    text = table.text(given)
    assert f"at most {5 * 8 / seconds['step']:,.0f} images/s".lower() in text.lower()
    with pytest.raises(ValueError, match="device_kind must be .* Did you mean 'a100"):
        asked.replace(device_kind="a100-60")


def test_the_least_time_of_a_step_by_hand(tmp_path):
    # TFLOPS in float32, TF32, float16 and bfloat16; GB/s.
    gpu = Gpu("made up", 1, 1.0, 4.0, 4.0, 8.0, bandwidth=100.0, link=10.0)
    job = planner.plan(settings(tmp_path, device_kind="l4", head_dtype="bfloat16"))
    backbone = dataclasses.replace(
        job.backbone,
        kernels=((1e12, 1e9, "float32"), (1e9, 80e9, "float16")),
        traced_images=5,
        weights=8 * 10**9,
        slots=0,
    )
    head = load(num_classes=2 * 10**6, row_bytes=1000, slot_bytes=1000, logits_bytes=0)
    devices = dataclasses.replace(job.devices, gpu=gpu)
    job = dataclasses.replace(job, head=head, backbone=backbone, devices=devices)
    found = step_time.bound(job)
    # Half of the peak in TF32; 80 % of the memory's bandwidth.
    assert found["backbone"] == pytest.approx(1 / 2 + 80 / 80)
    # 10^6 classes: logits are written or read eight times, weights four times and, with
    # the slots, five times by the update.
    moved = 10**6 * (8 * 10 * 4 + 4 * 1000 + 5 * 1000)
    assert found["head"] == pytest.approx(moved / 80e9)
    assert found["update"] == pytest.approx(3 * 8 / 80)
    # The sum of 8 GB of gradients hides behind the backward pass, 2 / 3 of 1.5 s.
    assert found["hidden"] == pytest.approx(8 / 8)
    assert found["collectives"] - found["hidden"] < 1e-6
    parts = ("backbone", "head", "update")
    assert found["step"] == pytest.approx(sum(found[name] for name in parts))
