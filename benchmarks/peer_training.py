"""A training step of arcface_torch's `train_v2.py` on images that are given, timed.

    python -m benchmarks.peer_training '{"checkout": …, "network": "r50", …}'

Their backbone, `PartialFC_V2` and `CombinedMarginLoss` are imported from the checkout
as they are; around them stands what `train_v2.py` does with one GPU: its distributed
wrapper with the compressed exchange, autocast and loss scale in float16, clipping.
"""

import json
import sys
import tempfile
import time

import torch
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

from benchmarks import machine
from benchmarks.peer_partial_fc import (
    Update,
    allow_precision,
    choose_device,
    run,
    seconds_of,
)


def make(config, device):
    """Returns (backbone, head, `Update` of both)."""
    sys.path.insert(0, config["checkout"])
    from backbones import get_model
    from losses import CombinedMarginLoss
    from partial_fc_v2 import PartialFC_V2

    half = config["precision"] == "float16"
    backbone = get_model(
        config["network"], dropout=0.0, fp16=half, num_features=512
    ).to(device)
    backbone = torch.nn.parallel.DistributedDataParallel(
        module=backbone,
        broadcast_buffers=False,
        device_ids=[0] if device.type == "cuda" else None,
        bucket_cap_mb=16,
        find_unused_parameters=True,
    )
    if device.type == "cuda":
        backbone.register_comm_hook(None, fp16_compress_hook)
    backbone.train()
    backbone._set_static_graph()
    # train_v2.py never passes fp16 to its head.
    head = PartialFC_V2(
        CombinedMarginLoss(64, 1.0, 0.5, 0.0), 512, config["num_classes"], 1.0, False
    )
    head.train().to(device)
    optimizer = torch.optim.SGD(
        [{"params": backbone.parameters()}, {"params": head.parameters()}],
        lr=0.01,
        momentum=0.9,
        weight_decay=5e-4,
    )
    return backbone, head, Update(optimizer, half, backbone.parameters())


def measure(config):
    """Returns `first_step_s`, `steps_s`, `losses` and `peak_gb`."""
    device = choose_device(0)
    allow_precision(config["precision"])
    torch.manual_seed(0)
    backbone, head, update = make(config, device)
    size = (config["global_batch"], 3, 112, 112)
    images = torch.rand(size, device=device) * 2 - 1
    labels = torch.randint(config["num_classes"], size[:1], device=device)

    def step():
        loss = head(backbone(images), labels.clone())
        update(loss)
        return loss.item()

    start = time.perf_counter()
    losses = [step()]
    first = time.perf_counter() - start
    step()
    seconds = []
    for _ in range(config["steps"]):
        taken, loss = seconds_of(step, device)
        seconds.append(taken)
        losses.append(loss)
    peak = machine.peak_rss()
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
    return {
        "first_step_s": first,
        "steps_s": seconds,
        "losses": losses,
        "peak_gb": peak / machine.GB,
    }


def main(config):
    """Measures and prints one line of JSON."""
    with tempfile.TemporaryDirectory() as folder:
        run(measure, config, f"file://{folder}/meeting_point")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
