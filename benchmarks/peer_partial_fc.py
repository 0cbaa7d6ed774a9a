"""One rank of arcface_torch's Partial FC, timed; run by `benchmarks.peer`.

    python -m benchmarks.peer_partial_fc '{"checkout": …, "rank": 0, …}'

Their `PartialFC_V2` and `CombinedMarginLoss` are imported from the checkout as they
are; around them stands what their `train_v2.py` does, with embeddings that are given
instead of a backbone. Needs PyTorch and nothing of ours but the memory reading.
"""

import contextlib
import json
import statistics
import sys
import time

import torch
from torch import distributed

from benchmarks import machine

MARGINS = {"arcface": (1.0, 0.5, 0.0), "cosface": (1.0, 0.0, 0.35)}


def make_optimizer(kind, parameters, rate):
    """The optimizer of `train_v2.py` (sgd with momentum, adamw) and its neighbours."""
    if kind == "adam":
        return torch.optim.Adam(parameters, lr=rate)
    if kind == "adamw":
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=0.004)
    momentum = 0.9 if kind == "momentum" else 0.0
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum, weight_decay=5e-4)


def make_batches(config, device, count=2):
    """This rank's part of each global batch: embeddings [b, emb] and labels [b]."""
    share = config["global_batch"] // config["ranks"]
    # Not the seed of the weights: their first rows would be these embeddings.
    seed = 1000 + config["seed"] + config["rank"]
    generator = torch.Generator().manual_seed(seed)
    size = (share, config["emb_size"])
    return [
        (
            torch.randn(size, generator=generator).to(device),
            torch.randint(config["num_classes"], size[:1], generator=generator).to(
                device
            ),
        )
        for _ in range(count)
    ]


def allow_precision(precision):
    """Sets what float32 products may use: "float32" is exact, all others allow TF32."""
    torch.backends.cuda.matmul.allow_tf32 = precision != "float32"
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    torch.backends.cudnn.benchmark = True


def choose_device(rank):
    """The GPU of a rank; without one the CPU, on which their `.cuda()` does nothing."""
    if torch.cuda.is_available():
        torch.cuda.set_device(rank)
        return torch.device("cuda", rank)
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor
    return torch.device("cpu")


def run(measure, config, init_method, ranks=1):
    """Joins the other ranks, measures, and prints the figures as one line of JSON."""
    distributed.init_process_group(
        "nccl" if torch.cuda.is_available() else "gloo",
        init_method=init_method,
        rank=config["rank"],
        world_size=ranks,
    )
    print(json.dumps({**measure(config), "torch": torch.__version__}))
    distributed.destroy_process_group()


class Update:
    """The backward pass and the update of `train_v2.py`, with its loss scale in fp16.

    Args:
        optimizer: the optimizer of all parameters.
        half: whether to scale the loss, as in float16.
        clipped: list of the parameters whose gradients are clipped to a norm of 5.
    """

    def __init__(self, optimizer, half, clipped=()):
        self.optimizer = optimizer
        self.clipped = list(clipped)
        scaler = torch.cuda.amp.grad_scaler.GradScaler
        self.scaler = scaler(growth_interval=100) if half else None

    def __call__(self, loss):
        """Computes the gradients of a loss and updates the parameters."""
        scaler, optimizer = self.scaler, self.optimizer
        if scaler is None:
            loss.backward()
        else:
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
        if self.clipped:
            torch.nn.utils.clip_grad_norm_(self.clipped, 5)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        optimizer.zero_grad()


def seconds_of(function, device):
    """Seconds of one call that all ranks begin together, and what it returns."""
    several = distributed.get_world_size() > 1
    if several:
        distributed.barrier()
    start = time.perf_counter()
    value = function()
    if device.type == "cuda":
        torch.cuda.synchronize()
    if several:
        distributed.barrier()
    return time.perf_counter() - start, value


def time_steps(module, optimizer, batches, config, device):
    """`steps_s` and `cpu_s` of the timed steps, `losses` of all steps."""
    update = Update(optimizer, config["precision"] == "float16")

    def step(embeddings, labels):
        embeddings = embeddings.clone().requires_grad_()
        loss = module(embeddings, labels.clone())
        update(loss)
        return loss.item()

    seconds, busy, losses = [], [], []
    for i in range(config["warmup"] + config["steps"]):
        batch = batches[i % len(batches)]
        before = time.process_time()
        taken, loss = seconds_of(lambda batch=batch: step(*batch), device)
        losses.append(loss)
        if i >= config["warmup"]:
            seconds.append(taken)
            busy.append(time.process_time() - before)
        if config["rank"] == 0:
            sys.stderr.write(f"peer: step {i + 1}: {taken:.2f} s, loss {loss:.4f}\n")
    return {"steps_s": seconds, "cpu_s": busy, "losses": losses}


def time_products(rows, config, device):
    """Seconds of the three bare products by layout, as in `benchmarks.products`."""
    weight = torch.randn(rows, config["emb_size"], device=device)
    inputs = torch.randn(config["global_batch"], config["emb_size"], device=device)

    def batch_by_classes():
        logits = inputs @ weight.T
        return logits.T @ inputs, logits @ weight

    def classes_by_batch():
        logits = weight @ inputs.T
        return logits @ inputs, logits.T @ weight

    seconds = {}
    for name, products in (
        ("batch_by_classes", batch_by_classes),
        ("classes_by_batch", classes_by_batch),
    ):
        seconds_of(products, device)
        taken = [seconds_of(products, device)[0] for _ in range(config["steps"])]
        seconds[name] = statistics.median(taken)
    return seconds


def measure(config):
    """Figures of this rank: those of `time_steps`, products_s, memory in bytes."""
    sys.path.insert(0, config["checkout"])
    from losses import CombinedMarginLoss
    from partial_fc_v2 import PartialFC_V2

    device = choose_device(config["rank"])
    torch.set_num_threads(config["threads"])
    torch.manual_seed(config["seed"] + config["rank"])
    baseline = machine.peak_rss()
    allow_precision(config["precision"])
    # PyTorch 2 draws the weights on the GPU, which is much faster.
    with device if hasattr(device, "__enter__") else contextlib.nullcontext():
        module = PartialFC_V2(
            CombinedMarginLoss(64, *MARGINS[config["margins"]]),
            config["emb_size"],
            config["num_classes"],
            config["sample_rate"],
            config["precision"] == "float16",
        )
    module.train().to(device)
    optimizer = make_optimizer(
        config["optimizer"], module.parameters(), config["learning_rate"]
    )
    batches = make_batches(config, device)
    figures = {
        **time_steps(module, optimizer, batches, config, device),
        "peak_rss": machine.peak_rss(),
        "baseline_rss": baseline,
    }
    if device.type == "cuda":
        figures["peak_device"] = torch.cuda.max_memory_allocated(device)
    rows = module.num_sample if config["sample_rate"] < 1 else module.num_local
    del module, optimizer
    if config["products"]:
        figures["products_s"] = time_products(rows, config, device)
    return figures


def main(config):
    """Runs a rank."""
    run(measure, config, config["init_method"], config["ranks"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
