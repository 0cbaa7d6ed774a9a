"""The server of an exported model."""

import dataclasses
from collections.abc import Sequence

from plsc_tf.flags.option import OptionGroup, option


def read_labels(name: str, items: Sequence[str]) -> dict[str, int]:
    """Returns `version_labels` as a dict, label -> version.

    Args:
        name: of the option, for errors.
        items: its value.

    Raises:
        ValueError: an item that is not label:version, or a label given twice.
    """
    labels = {}
    for item in items:
        label, colon, version = item.partition(":")
        if not colon or not label or not version.isdecimal() or label in labels:
            raise ValueError(
                f"{name} must be label:version, separated by commas, each label once. "
                f"Received: {name}={items!r}."
            )
        labels[label] = int(version)
    return labels


def _power_of_two(name, value):
    if value & (value - 1):
        raise ValueError(f"{name} must be a power of two. Received: {name}={value}.")


@dataclasses.dataclass(frozen=True)
class Server(OptionGroup, saved=False):
    """The models, addresses and limits of `python -m plsc_tf.serve`."""

    model_path: str = option(
        "",
        "folder with the version folders 1, 2, ... of an export (TF Serving "
        "model_base_path, PLSC with_model), or a single version folder. This command "
        "takes --model_dir for it too",
    )
    served_name: str = option(
        "",
        "the model's name in URLs; empty: the last part of model_path (TF Serving "
        "model_name)",
    )
    num_versions: int = option(
        1, "newest versions to serve, the newest by default", lower=1
    )
    version_labels: tuple[str, ...] = option(
        (),
        "names of versions, such as stable:3,canary:4 (TF Serving)",
        check=read_labels,
    )
    poll_seconds: float = option(
        1.0,
        "seconds between two looks for new versions; 0: never (TF Serving "
        "file_system_poll_wait_seconds)",
        lower=0,
    )

    host: str = option(
        "127.0.0.1",
        "address to listen on; 0.0.0.0: all of this machine. There is no "
        "authentication",
    )
    port: int = option(
        8866,
        "port of HTTP; 0: a free one (PLSC port; TF Serving rest_api_port)",
        within="[0, 65535]",
    )
    grpc_port: int | None = option(
        None,
        "port of gRPC; 0: a free one, None: no gRPC (TF Serving port, 8500)",
        within="[0, 65535]",
    )
    gpu_index: int = option(0, "the GPU to use, if any (PLSC gpu_index)", lower=0)

    latency_ms: float = option(
        100.0,
        "milliseconds in which an image should be answered: it waits for one batch and "
        "is in the next, so a batch takes half of it at most",
        within="(0, inf)",
    )
    max_batch_images: int = option(
        32,
        "most images in a batch; a power of two",
        within="[1, 1024]",
        check=_power_of_two,
    )
    parallel_batches: int = option(2, "batches computed at the same time", lower=1)
    queue_images: int = option(
        1024, "images that may wait; more are refused with 503", lower=1
    )

    max_request_images: int = option(256, "most images of a request", lower=1)
    max_body_mb: float = option(
        32.0, "most megabytes of a request's body", within="(0, inf)"
    )
    max_image_mb: float = option(
        8.0, "most megabytes of an encoded image", within="(0, inf)"
    )
    max_megapixels: float = option(
        16.0,
        "most million pixels of an image, by its header; also of a batch together",
        within="(0, inf)",
    )
    max_receiving_mb: float = option(
        512.0,
        "most megabytes of bodies in memory at the same time",
        within="(0, inf)",
    )
    max_connections: int = option(1024, "most connections at the same time", lower=1)
    receive_timeout: float = option(
        20.0,
        "seconds that a request's head, its body, and the reading of an answer may "
        "take each",
        within="(0, inf)",
    )
    answer_timeout: float = option(
        30.0,
        "seconds that an image may take, with its time in the queue",
        within="(0, inf)",
    )
    drain_timeout: float = option(
        20.0, "seconds that requests get to end after SIGTERM", lower=0
    )

    gallery_dir: str = option("", "folder of a gallery of known faces; empty: none")
    gallery_dtype: str = option(
        "float32",
        "type of the numbers in a new gallery; float16 halves its size",
        choices=("float32", "float16"),
        applies="gallery_dir",
    )

    def labels(self) -> dict[str, int]:
        """`version_labels` as a dict, label -> version."""
        return read_labels("version_labels", self.version_labels)
