"""PyTorch's linear_cross_entropy, for `benchmarks.linear_cross_entropy`.

It runs in a Python that has PyTorch, needs nothing else, and prints one JSON object.
A PyTorch without linear_cross_entropy is timed with all logits.
"""

import json
import statistics
import sys
import time

import torch


def loss(x, weight, labels):
    """The mean loss, in chunks if this PyTorch can."""
    if hasattr(torch.nn.functional, "linear_cross_entropy"):
        options = torch.nn.LinearCrossEntropyOptions()
        return torch.nn.functional.linear_cross_entropy(
            x, weight, labels, options=options
        )
    return torch.nn.functional.cross_entropy(x @ weight.T, labels)


def main(batch, num_classes, emb_size, rounds):
    """Prints the median seconds of loss and gradients."""
    x, weight = torch.randn(batch, emb_size), torch.randn(num_classes, emb_size)
    for value in (x, weight):
        value.mul_(emb_size**-0.25).requires_grad_()
    labels = torch.arange(batch) % num_classes
    wall, cpu = [], []
    for _ in range(rounds + 1):
        x.grad = weight.grad = None
        start = time.perf_counter(), time.process_time()
        loss(x, weight, labels).backward()
        wall.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
    figures = {
        "seconds": statistics.median(wall[1:]),
        "cpu_seconds": statistics.median(cpu[1:]),
        "version": torch.__version__,
        "chunked": hasattr(torch.nn.functional, "linear_cross_entropy"),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
