"""The steps of the programme: their questions and their parts, in full and toy size."""

import dataclasses

from benchmarks.gpu.parts import Part

FUNCTIONS = "benchmarks.gpu."
# Options of every training.
COMMON = (
    *("--num_replicas=1", "--with_test=false", "--export_at_end=false"),
    *("--learning_rate=0.05", "--lr_base_batch_size=0", "--val_targets="),
)


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of the programme.

    Attributes:
        letter: "A" to "G".
        title: what it does.
        parts: list of `Part`.
    """

    letter: str
    title: str
    parts: list


def programme(case):
    """Returns all steps, in order.

    Args:
        case: the `GpuCase`.
    """
    parts = _Toy(case) if case.toy else _Full(case)
    titles = {
        "A": "Smoke: devices, products, a convolution; a training with a resume",
        "B": "The head: tiles, precision, Partial FC, TF32",
        "C": "The head beside arcface_torch",
        "D": "The whole network, with and without XLA; a training on JPEG files",
        "E": "A profile of five steps, and the planned memory",
        "F": "Conformance of heads and losses, TF32 off, on one and two logical GPUs",
        "G": "The largest number of classes with full softmax",
    }
    return [
        Step(letter, title, list(getattr(parts, letter.lower())()))
        for letter, title in titles.items()
    ]


class _Full:
    """The parts of every step on a GPU."""

    head_sizes = ((125_000, 1024), (1_000_000, 128))
    tiles = (None, 256, 1000)
    head = {"emb_size": 512, "num_replicas": 1, "steps": 20, "warmup": 5}
    network = {"image_size": 112, "emb_size": 512, "num_classes": 10_000}
    network |= {"model_name": "iresnet50"}
    batch = {"global_batch": 128}
    # The most important ones first: the time of a step may not suffice for all.
    dtypes = ("bfloat16", "float16", "float32")
    compiled = (
        {"jit_compile": True},
        {"jit_compile": False},
        {"jit_compile": True, "recompute": "blocks"},
    )
    steps = {"steps": 20}
    own = ({}, {"head_dtype": "bfloat16"}, {"sample_rate": 0.1})
    peers = ("float32", "tf32", "float16")
    # Options of a training, as `network` describes it.
    flags = (
        *(*COMMON, "--model_name=iresnet50", "--emb_size=512", "--use_bf16"),
        *("--global_batch_size=128", "--datasets_use_caching=true"),
    )
    small = (
        *(*COMMON, "--dataset_name=mock", "--num_classes=1000"),
        *("--num_sample_per_epoch=640", "--num_epochs=2", "--image_shape=3,64,64"),
        *("--model_name=resnet10", "--emb_size=128", "--global_batch_size=64"),
        "--use_fp16",
    )
    profiled = {"warmup": 10, "traced": 5}
    losses = ()
    samplings = (([1], ["all", "sampled", "large"]), ([2], ["all", "sampled"]))
    capacity = {"emb_size": 512, "global_batch": 128, "steps": 2, "warmup": 1}
    # Drawing normal weights would take longer than everything else.
    capacity |= {"initializer": "constant(0.1)", "num_replicas": 1}
    search = {"trials": 5, "seconds": 220}
    trial = {"in_process": False}

    def __init__(self, case):
        self.case = case
        self.checkout = {"checkout": case.peer, "python": case.peer_python}

    def a(self):
        yield Part("A", "devices", f"{FUNCTIONS}smoke.devices")
        size = {"size": 64 if self.case.toy else 2048}
        yield Part("A", "kernels", f"{FUNCTIONS}smoke.kernels", size)
        given = {"flags": list(self.small), "steps": 5}
        yield Part("A", "training and resume", f"{FUNCTIONS}smoke.training", given)

    def b(self):
        for classes, batch in self.head_sizes:
            for tile in self.tiles:
                yield self._head("B", classes, batch, tile_mb=tile)
            yield self._head("B", classes, batch, head_dtype="bfloat16")
            yield self._head("B", classes, batch, sample_rate=0.1)
            yield self._head("B", classes, batch, tf32=False)

    def c(self):
        for classes, batch in self.head_sizes:
            for given in self.own:
                yield self._head("C", classes, batch, **given)
            for precision in self.peers:
                yield self._peer(classes, batch, peer_precision=precision)
            sampled = {"peer_precision": "tf32", "sample_rate": 0.1}
            yield self._peer(classes, batch, **sampled)

    def d(self):
        yield from self._networks(self.dtypes[0])
        yield self._torch("float16")
        yield self._training()
        for dtype in self.dtypes[1:]:
            yield from self._networks(dtype)
        yield self._torch("tf32")

    def _training(self):
        given = {
            "images": self.case.images,
            "count": 64 if self.case.toy else 40_000,
            "num_classes": self.network["num_classes"] // 10,
            "image_size": self.network["image_size"],
            "flags": [*self.flags, "--num_epochs=2"],
        }
        return Part("D", "whole training", f"{FUNCTIONS}networks.training", given)

    def _networks(self, dtype):
        given = {**self.network, **self.batch, **self.steps, "dtype": dtype}
        for one in self.compiled:
            if "recompute" in one and dtype != self.dtypes[0]:
                continue
            words = [f"{name}={value}" for name, value in one.items()]
            name = ", ".join([dtype, *words])
            yield Part("D", name, f"{FUNCTIONS}networks.step", {**given, **one})

    def e(self):
        given = {**self.network, **self.batch, **self.profiled}
        given |= {"dtype": "bfloat16"}
        if not self.case.toy:
            given["save_to"] = f"{self.case.output}/steps.xplane.pb"
        yield Part("E", "profile", f"{FUNCTIONS}profile.steps", given)
        size = self.network["image_size"]
        flags = [
            *self.flags,
            f"--num_classes={self.network['num_classes']}",
            f"--image_shape=3,{size},{size}",
            "--dataset_name=mock",
        ]
        planned = {"flags": flags}
        yield Part("E", "planned memory", f"{FUNCTIONS}profile.planned", planned)

    def f(self):
        for replicas, samplings in self.samplings:
            name = f"replicas: {', '.join(map(str, replicas))}"
            given = {"losses": list(self.losses), "replicas": replicas}
            given["samplings"] = samplings
            yield Part("F", name, f"{FUNCTIONS}exact.heads", given)

    def g(self):
        given = {**self.capacity, **self.search}
        own = {**given, **self.trial}
        yield Part("G", "plsc_tf", f"{FUNCTIONS}capacity.ours", own, limit_s=300)
        given |= {**self.checkout, "peer_precision": "tf32"}
        yield Part("G", "arcface_torch", f"{FUNCTIONS}capacity.theirs", given)

    def _head(self, step, classes, batch, **given):
        changed = ", ".join(f"{k}={v}" for k, v in given.items() if v is not None)
        name = f"{classes:,} × {batch:,}{', ' if changed else ''}{changed}"
        case = {**self.head, "num_classes": classes, "global_batch": batch, **given}
        return Part(step, name, f"{FUNCTIONS}heads.step", case)

    def _peer(self, classes, batch, **given):
        changed = ", ".join(f"{k}={v}" for k, v in given.items())
        case = {**self.head, "num_classes": classes, "global_batch": batch, **given}
        case |= self.checkout
        name = f"{classes:,} × {batch:,}, arcface_torch, {changed}"
        return Part("C", name, f"{FUNCTIONS}heads.peers", case)

    def _torch(self, precision):
        case = {"network": "r50", "precision": precision, **self.batch, **self.steps}
        case |= self.checkout
        case["num_classes"] = self.network["num_classes"]
        name = f"arcface_torch, {precision}"
        return Part("D", name, f"{FUNCTIONS}networks.peer", case)


class _Toy(_Full):
    """The same at sizes that a CPU computes in seconds; one or two parts of a kind."""

    head_sizes = ((301, 6),)
    tiles = (0.01,)
    head = {"emb_size": 16, "num_replicas": 1, "steps": 2, "warmup": 1}
    network = {"image_size": 16, "emb_size": 8, "num_classes": 50}
    network |= {"model_name": "lenet"}
    batch = {"global_batch": 8}
    dtypes = ("bfloat16",)
    compiled = ({"jit_compile": True, "recompute": "blocks"},)
    own = ({},)
    steps = {"steps": 2}
    flags = (
        *(*COMMON, "--model_name=lenet", "--emb_size=8", "--use_bf16"),
        *("--dropout=0", "--global_batch_size=8", "--preprocessing_name=face"),
    )
    small = (
        *(*COMMON, "--dataset_name=mock", "--num_classes=7"),
        *("--num_sample_per_epoch=40", "--num_epochs=2", "--image_shape=3,16,16"),
        *("--model_name=lenet", "--emb_size=8", "--global_batch_size=8"),
        "--preprocessing_name=face",
    )
    profiled = {"warmup": 1, "traced": 2}
    losses = ("arcface",)
    samplings = (([1], ["sampled"]),)
    capacity = {"emb_size": 16, "global_batch": 6, "steps": 1, "warmup": 1}
    capacity |= {"initializer": "constant(0.1)", "num_replicas": 1}
    search = {"trials": 1, "seconds": 60, "most": 500, "gpu_gb": 1}
    trial = {"in_process": True}
