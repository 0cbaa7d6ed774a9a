"""A model of a step's time over the number of devices: compute, softmax, network.

    step = shared · (fixed + images · t_image + rows · batch · t_logit + rows · t_row)
           + Σ collectives · latency + Σ bytes sent / bandwidth

`rows` are a replica's classes, `batch` the global batch, and `shared` says how many
workers have to share a core. Nothing is overlapped.
"""

import dataclasses
import math

import numpy as np

from plsc_tf.heads import memory
from plsc_tf.heads.memory import HeadLoad

FLOAT = 4


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a training step is made of.

    Attributes:
        weights: numbers of the backbone.
        embedding_size: of its output.
        num_classes: of the whole head.
        own_batch: images of each replica.
        sample_rate: of Partial FC.
    """

    weights: int
    embedding_size: int
    num_classes: int
    own_batch: int
    sample_rate: float = 1.0

    def rows(self, replicas):
        """Classes of a replica that take part in a step."""
        return self.sample_rate * self.num_classes / replicas

    def collectives(self, replicas, *, gradient_bytes=FLOAT, reduce_scatter=True):
        """What the replicas exchange, see `plsc_tf.heads.memory`."""
        load = HeadLoad(
            num_classes=self.num_classes,
            embedding_size=self.embedding_size,
            replicas=replicas,
            global_batch=replicas * self.own_batch,
            sample_rate=self.sample_rate,
        )
        return memory.collectives(
            load, gradient_bytes * self.weights, reduce_scatter=reduce_scatter
        )


@dataclasses.dataclass(frozen=True)
class Speeds:
    """Seconds that one device takes, fitted to steps of one device alone.

    Attributes:
        fixed: of every step.
        image: of the backbone, per image.
        logit: of the head, per class and example.
        row: of the head, per class: its update.
    """

    fixed: float
    image: float
    logit: float
    row: float

    @classmethod
    def fit(cls, measured):
        """Least squares of relative errors; nothing takes less than no time.

        Args:
            measured: list of (images, rows, batch, seconds).
        """
        seconds = np.array([row[3] for row in measured])
        terms = [[1, images, rows * batch, rows] for images, rows, batch, _ in measured]
        weighted = np.array(terms, float) / seconds[:, None]
        kept = [0, 1, 2, 3]
        while True:
            found, *_ = np.linalg.lstsq(
                weighted[:, kept], np.ones(len(seconds)), rcond=None
            )
            if found.min() >= 0:
                break
            del kept[int(found.argmin())]
        return cls(
            *(float(found[kept.index(i)]) if i in kept else 0.0 for i in range(4))
        )


@dataclasses.dataclass(frozen=True)
class Network:
    """What collectives cost.

    Attributes:
        latency: seconds of a small one.
        bandwidth: bytes per second that each replica sends in a large one.
    """

    latency: float
    bandwidth: float

    def seconds(self, collectives):
        """Of so many, one after the other."""
        count = sum(one.count for one in collectives)
        return count * self.latency + sum(c.sent for c in collectives) / self.bandwidth


def terms(shape, replicas, speeds, network, shared=1):
    """`{"compute", "softmax", "network"}` seconds of a step, and their sum `"step"`."""
    rows, batch = shape.rows(replicas), replicas * shape.own_batch
    found = {
        "compute": shared * (speeds.fixed + shape.own_batch * speeds.image),
        "softmax": shared * (rows * batch * speeds.logit + rows * speeds.row),
        "network": 0.0,
    }
    if replicas > 1:
        found["network"] = network.seconds(shape.collectives(replicas))
    return {**found, "step": sum(found.values())}


@dataclasses.dataclass(frozen=True)
class Gpu:
    """Published peak figures of a GPU and of what connects it.

    Attributes:
        name: of the GPU.
        flops: float32 operations per second.
        memory: bytes per second of its memory.
        link: bytes per second and direction to the others of its machine.
        per_machine: GPUs of a machine.
    """

    name: str
    flops: float
    memory: float
    link: float
    per_machine: int


# NVIDIA's datasheet: 15.7 TFLOPS, 900 GB/s, six links of 25 GB/s in each direction.
V100 = Gpu("Tesla V100 SXM2", 15.7e12, 900e9, 150e9, 8)
# Bytes per second and direction of a whole machine: 4 EDR adapters as in a DGX-1, 100
# and 10 Gb/s Ethernet.
NETWORKS = {
    "InfiniBand 4 x EDR": 50e9,
    "Ethernet 100 Gb/s": 12.5e9,
    "Ethernet 10 Gb/s": 1.25e9,
}
# Images per second and GPU in training: README of insightface's recognition/
# arcface_torch at 0159b24, "Speed Benchmark", 8 V100 of 32 GB, 125,000 classes, Partial
# FC 0.1. Its own head and exchanges are in it, as small as they get there.
R50_IMAGES = 5004 / 8


def bound(shape, replicas, gpu, machine_network, images_per_second, *, half=False):
    """Seconds of a step that nothing can undercut on published figures.

    No latency, every link and processor at its peak, and the sum of the gradients as
    far behind the backward pass (two thirds of the backbone's time) as fits.

    Args:
        shape: the `Shape`.
        replicas: GPUs, on as few machines as hold them.
        gpu: the `Gpu`.
        machine_network: bytes per second and direction between machines.
        images_per_second: of the backbone's training on one GPU.
        half: whether the gradients travel in half precision.

    Returns:
        dict of seconds: `compute`, `softmax`, `network`, and what is `hidden` of it;
        `step` and `images_per_second` over all GPUs.
    """
    rows, batch = shape.rows(replicas), replicas * shape.own_batch
    products = 3 * 2 * rows * batch * shape.embedding_size / gpu.flops
    # Logits are written, read, written and read; weights read in both passes and with
    # the momentum read and written.
    moved = FLOAT * rows * (4 * batch + 5 * shape.embedding_size)
    compute = shape.own_batch / images_per_second
    softmax = products + moved / gpu.memory
    machines = math.ceil(replicas / gpu.per_machine)
    # A ring passes each machine's door once: what a replica sends, a machine sends.
    bandwidth = gpu.link if machines == 1 else min(gpu.link, machine_network)
    sent = {
        one.name: one.sent
        for one in shape.collectives(
            replicas, gradient_bytes=2 if half else FLOAT, reduce_scatter=False
        )
    }
    network = sum(sent.values()) / bandwidth
    gradients = sent["gradients of mirrored weights"] / bandwidth
    hidden = min(gradients, compute * 2 / 3)
    step = compute + softmax + network - hidden
    return {
        "compute": compute,
        "softmax": softmax,
        "network": network,
        "hidden": hidden,
        "step": step,
        "images_per_second": batch / step,
    }
