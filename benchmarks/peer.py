"""arcface_torch's Partial FC beside ours: one process per rank, same shapes."""

import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from benchmarks import machine
from benchmarks.children import ROOT

FILES = ("partial_fc_v2.py", "losses.py")


def find_checkout(folder):
    """The folder of arcface_torch in or at `folder`, which may be insightface's.

    Raises:
        FileNotFoundError: there is none.
    """
    folder = pathlib.Path(folder).resolve()
    for candidate in (folder, folder / "recognition" / "arcface_torch"):
        if all((candidate / name).is_file() for name in FILES):
            return candidate
    raise FileNotFoundError(
        f"--peer must be a checkout of insightface, or its recognition/arcface_torch "
        f"with {' and '.join(FILES)}. Received: --peer={folder}"
    )


def measure(case):
    """Runs the ranks and sums up what they found.

    Args:
        case: the `HeadCase`; `num_replicas` (0: 1) is the number of ranks.

    Returns:
        dict with the names of `benchmarks.head`; memory is summed over the ranks.

    Raises:
        ValueError: their code has no such head.
        RuntimeError: a rank failed.
    """
    if case.margins == "softmax":
        raise ValueError(
            "arcface_torch has no plain softmax. With --peer, --margins must be "
            "arcface or cosface. Received: --margins=softmax"
        )
    ranks = case.num_replicas or 1
    if case.global_batch % ranks:
        raise ValueError(
            "The number of ranks of arcface_torch must divide the global batch. "
            f"Received: --global_batch={case.global_batch}, {ranks} ranks"
        )
    checkout = find_checkout(case.peer)
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder, machine.watch_others() as others:
        ranks_found = run_ranks(
            case.peer_python,
            {
                "checkout": str(checkout),
                "init_method": f"file://{folder}/meeting_point",
                "ranks": ranks,
                "threads": case.peer_threads or max(1, cores // ranks),
                "learning_rate": case.rate,
                "precision": case.peer_precision,
                **{name: getattr(case, name) for name in _SHARED},
            },
        )
    return {**_summary(ranks_found), **others}


_SHARED = (
    "num_classes",
    "emb_size",
    "global_batch",
    "sample_rate",
    "optimizer",
    "margins",
    "steps",
    "warmup",
    "products",
    "seed",
)


def run_ranks(python, config, module="benchmarks.peer_partial_fc"):
    """Starts one process per rank; returns what each of them prints, parsed.

    Args:
        python: a Python with PyTorch.
        config: the argument of the module, a dict with the number of `ranks`.
        module: program of a rank.

    Raises:
        RuntimeError: a rank failed.
    """
    started = []
    for rank in range(config["ranks"]):
        text = json.dumps({**config, "rank": rank})
        command = [python, "-m", module, text]
        started.append(
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        )
    try:
        # A rank whose partner died would wait for it for half an hour.
        while any(process.poll() is None for process in started):
            if any(process.poll() for process in started):
                break
            time.sleep(0.2)
        failed = [process.poll() for process in started if process.poll()]
    finally:
        for process in started:
            process.kill()
            process.wait()
    if failed:
        raise RuntimeError(
            f"A rank of arcface_torch failed with status {failed[0]}, see the messages "
            f"above. {python} must be a Python with PyTorch (--peer_python), and the "
            "memory must suffice for both ranks."
        )
    return [json.loads(p.stdout.read().splitlines()[-1]) for p in started]


def _summary(ranks):
    # A step ends when the slowest rank does.
    steps = [max(times) for times in zip(*(r["steps_s"] for r in ranks), strict=True)]
    busy = [sum(times) for times in zip(*(r["cpu_s"] for r in ranks), strict=True)]
    figures = {
        "step_s": statistics.median(steps),
        "step_min_s": min(steps),
        "step_cpu_s": statistics.median(busy),
        "steps_s": steps,
        "peak_rss_gb": sum(r["peak_rss"] for r in ranks) / machine.GB,
        "baseline_rss_gb": sum(r["baseline_rss"] for r in ranks) / machine.GB,
        "loss_first": ranks[0]["losses"][0],
        "loss_last": ranks[0]["losses"][-1],
        "torch": ranks[0]["torch"],
    }
    if "peak_device" in ranks[0]:
        figures["peak_device_gb"] = [r["peak_device"] / machine.GB for r in ranks]
    if "products_s" in ranks[0]:
        by_layout = {
            name: max(r["products_s"][name] for r in ranks)
            for name in ranks[0]["products_s"]
        }
        figures["products_s"] = by_layout["batch_by_classes"]
        figures["products_best_s"] = min(by_layout.values())
        figures["ratio"] = figures["step_s"] / figures["products_s"]
    return figures
