"""The server of an exported model."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Server(OptionGroup):
    """What `python -m plsc_tf.serve` serves, where, and within which limits."""

    model_path: str = option(
        "",
        "folder with the version folders 1, 2, ... of an export (TF Serving "
        "model_base_path, PLSC with_model); a single version folder is served as it "
        "is. This command takes --model_dir for it too",
        saved=False,
    )
    served_name: str = option(
        "",
        "the model's name in URLs; empty: the last part of model_path (TF Serving "
        "model_name)",
        saved=False,
    )
    num_versions: int = option(
        1,
        "newest versions that are served, the newest by default",
        lower=1,
        saved=False,
    )
    version_labels: tuple[str, ...] = option(
        (), "names of versions, as stable:3,canary:4 (TF Serving)", saved=False
    )
    poll_seconds: float = option(
        1.0,
        "how often to look for new versions; 0: never (TF Serving "
        "file_system_poll_wait_seconds)",
        lower=0,
        saved=False,
    )

    host: str = option(
        "127.0.0.1",
        "address to listen at; 0.0.0.0: all of this machine. Callers are not asked who "
        "they are",
        saved=False,
    )
    port: int = option(
        8866,
        "port of HTTP; 0: a free one (PLSC port; TF Serving rest_api_port)",
        lower=0,
        upper=65535,
        saved=False,
    )
    grpc_port: int | None = option(
        None,
        "port of gRPC; 0: a free one, None: no gRPC (TF Serving port, 8500)",
        lower=0,
        upper=65535,
        saved=False,
    )
    gpu_index: int = option(
        0, "the GPU to use, where there are any (PLSC gpu_index)", lower=0, saved=False
    )

    latency_ms: float = option(
        100.0,
        "milliseconds within which a picture is to be answered: it waits for one batch "
        "and is in the next, so a batch takes half of it at most",
        lower=0,
        open_ends="lower",
        saved=False,
    )
    max_batch_images: int = option(
        32, "most pictures in a batch; a power of two", lower=1, upper=1024, saved=False
    )
    parallel_batches: int = option(
        2, "batches that are computed at the same time", lower=1, saved=False
    )
    queue_images: int = option(
        1024, "pictures that may wait; more are refused with 503", lower=1, saved=False
    )

    max_request_images: int = option(
        256, "most pictures of a request", lower=1, saved=False
    )
    max_body_mb: float = option(
        32.0,
        "most megabytes of a request's body",
        lower=0,
        open_ends="lower",
        saved=False,
    )
    max_image_mb: float = option(
        8.0,
        "most megabytes of an encoded picture",
        lower=0,
        open_ends="lower",
        saved=False,
    )
    max_megapixels: float = option(
        16.0,
        "most million pixels of a picture, by its header; also of a batch together",
        lower=0,
        open_ends="lower",
        saved=False,
    )
    max_receiving_mb: float = option(
        512.0,
        "most megabytes of bodies that are in memory at the same time",
        lower=0,
        open_ends="lower",
        saved=False,
    )
    max_connections: int = option(
        1024, "most connections at the same time", lower=1, saved=False
    )
    receive_timeout: float = option(
        20.0,
        "seconds that a request's head, its body, and the reading of an answer may "
        "take each",
        lower=0,
        open_ends="lower",
        saved=False,
    )
    answer_timeout: float = option(
        30.0,
        "seconds that a picture may wait and be computed",
        lower=0,
        open_ends="lower",
        saved=False,
    )
    drain_timeout: float = option(
        20.0,
        "seconds that requests get to end after SIGTERM",
        lower=0,
        saved=False,
    )

    gallery_dir: str = option(
        "", "folder of a gallery of known faces; empty: none", saved=False
    )
    gallery_dtype: str = option(
        "float32",
        "numbers in a new gallery; float16 halves its size",
        choices=("float32", "float16"),
        saved=False,
        applies="gallery_dir",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.max_batch_images & (self.max_batch_images - 1):
            raise ValueError(
                "max_batch_images must be a power of two. Received: "
                f"max_batch_images={self.max_batch_images}."
            )
        self.labels()

    def labels(self):
        """`version_labels` as a dict, label -> version."""
        labels = {}
        for item in self.version_labels:
            label, colon, version = item.partition(":")
            if not colon or not label or not version.isdecimal() or label in labels:
                raise ValueError(
                    "version_labels must be label:version, separated by commas, each "
                    f"label once. Received: version_labels={self.version_labels!r}."
                )
            labels[label] = int(version)
        return labels
