"""Defines the options for serving an exported model."""

from collections.abc import Sequence

from plsc_tf.flags import checks
from plsc_tf.flags.option import OptionGroup, option


def read_labels(name: str, items: Sequence[str]) -> dict[str, int]:
    """Returns `version_labels` as `{label: version}`.

    Args:
        name: the option's name for error messages.
        items: the option's value.

    Raises:
        ValueError: an item is not label:version, or a label occurs twice.
    """
    return checks.read_pairs(name, items, ":", "label:version", lambda _, n: int(n))


class Server(OptionGroup, saved=False):
    """Options of `python -m plsc_tf.serve`: models, addresses and limits."""

    model_path: str = option(
        "",
        "folder of an export's version folders, or one of them; this command also "
        "accepts --model_dir as its name (TF Serving model_base_path)",
    )
    served_name: str = option(
        "",
        "name of the model in URLs; empty: the last part of model_path (TF Serving "
        "model_name)",
    )
    num_versions: int = option(1, "number of newest versions to serve", lower=1)
    version_labels: tuple[str, ...] = option(
        (),
        "names of versions, such as stable:3,canary:4 (TF Serving)",
        check=read_labels,
    )
    poll_seconds: float = option(
        1.0,
        "seconds between two checks for new versions; 0: no checks (TF Serving)",
        lower=0,
    )

    host: str = option(
        "127.0.0.1",
        "address to listen on; 0.0.0.0 accepts connections from other machines, "
        "without authentication",
    )
    port: int = option(8866, "HTTP port; 0: any free port (PLSC)", within="[0, 65535]")
    grpc_port: int | None = option(
        None, "gRPC port; 0: any free port; None: no gRPC", within="[0, 65535]"
    )
    gpu_index: int = option(
        0, "index of the GPU to use, if the machine has any (PLSC)", lower=0
    )

    latency_ms: float = option(
        100.0,
        "time within which to answer an image, in milliseconds",
        within="(0, inf)",
    )
    max_batch_images: int = option(
        32,
        "largest number of images in a batch",
        within="[1, 1024]",
        check=checks.power_of_two,
    )
    parallel_batches: int = option(
        2, "number of batches to compute at the same time", lower=1
    )
    queue_images: int = option(
        1024,
        "number of images that may wait; further requests are answered with 503",
        lower=1,
    )

    max_request_images: int = option(
        256, "largest number of images in a request", lower=1
    )
    max_body_mb: float = option(
        32.0, "largest size of a request body, in megabytes", within="(0, inf)"
    )
    max_image_mb: float = option(
        8.0, "largest size of an encoded image, in megabytes", within="(0, inf)"
    )
    max_megapixels: float = option(
        16.0,
        "largest number of pixels of an image, and of a batch, in millions",
        within="(0, inf)",
    )
    max_receiving_mb: float = option(
        512.0,
        "largest total size of request bodies in memory, in megabytes",
        within="(0, inf)",
    )
    max_connections: int = option(
        1024, "largest number of simultaneous connections", lower=1
    )
    receive_timeout: float = option(
        20.0,
        "seconds for each of: receiving a request's head, receiving its body, sending"
        " the answer",
        within="(0, inf)",
    )
    answer_timeout: float = option(
        30.0,
        "longest time to answer an image, in seconds, including the queue",
        within="(0, inf)",
    )
    drain_timeout: float = option(
        20.0, "seconds to complete requests after SIGTERM", lower=0
    )

    gallery_dir: str = option(
        "", "folder of a gallery of known faces; empty: no gallery"
    )
    gallery_dtype: str = option(
        "float32",
        "type of the numbers in a new gallery; float16 halves its size",
        choices=("float32", "float16"),
        applies="gallery_dir",
    )

    def labels(self) -> dict[str, int]:
        """Returns `version_labels` as `{label: version}`."""
        return read_labels("version_labels", self.version_labels)
