"""A model of a step's time over the number of devices: compute, softmax, network.

    step = shared · (fixed + images · t_image + rows · batch · t_logit + rows · t_row)
           + Σ collectives · latency + Σ bytes sent / bandwidth

`rows` are a replica's classes, `batch` the global batch, and `shared` says how many
workers have to share a core. Nothing is overlapped.
"""

import dataclasses

import numpy as np

from plsc_tf.heads import memory
from plsc_tf.heads.memory import HeadLoad


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a training step is made of.

    Attributes:
        weights: numbers of the backbone.
        embedding_size: of its output.
        num_classes: of the whole head.
        own_batch: images of each replica.
    """

    weights: int
    embedding_size: int
    num_classes: int
    own_batch: int

    def collectives(self, replicas):
        """What the replicas exchange, see `plsc_tf.heads.memory`."""
        load = HeadLoad(
            num_classes=self.num_classes,
            embedding_size=self.embedding_size,
            replicas=replicas,
            global_batch=replicas * self.own_batch,
        )
        return memory.collectives(load, 4 * self.weights, reduce_scatter=True)


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
    rows, batch = shape.num_classes / replicas, replicas * shape.own_batch
    found = {
        "compute": shared * (speeds.fixed + shape.own_batch * speeds.image),
        "softmax": shared * (rows * batch * speeds.logit + rows * speeds.row),
        "network": 0.0,
    }
    if replicas > 1:
        found["network"] = network.seconds(shape.collectives(replicas))
    return {**found, "step": sum(found.values())}
