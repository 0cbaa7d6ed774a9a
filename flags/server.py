"""The server of an exported model."""

from collections.abc import Sequence

from plsc_tf.flags import checks
from plsc_tf.flags.option import OptionGroup, option


def read_labels(name: str, items: Sequence[str]) -> dict[str, int]:
    """Returns `version_labels` as a dict, label -> version.

    Args:
        name: of the option, for errors.
        items: its value.

    Raises:
        ValueError: an item that is not label:version, or a label given twice.
    """
    return checks.read_pairs(name, items, ":", "label:version", lambda _, n: int(n))


class Server(OptionGroup, saved=False):
    """The models, addresses and limits of `python -m plsc_tf.serve`."""

    model_path: str = option(
        "",
        "folder of an export's version folders, or one of them; this command takes "
        "--model_dir for it too (TF Serving model_base_path)",
    )
    served_name: str = option(
        "", "name in URLs; empty: the last part of model_path (TF Serving model_name)"
    )
    num_versions: int = option(1, "newest versions to serve", lower=1)
    version_labels: tuple[str, ...] = option(
        (), "names of versions: stable:3,canary:4 (TF Serving)", check=read_labels
    )
    poll_seconds: float = option(
        1.0, "seconds between looks for new versions; 0: never (TF Serving)", lower=0
    )

    host: str = option(
        "127.0.0.1",
        "address to listen on; 0.0.0.0 accepts connections from other machines, and "
        "clients do not authenticate",
    )
    port: int = option(8866, "port of HTTP; 0: a free one (PLSC)", within="[0, 65535]")
    grpc_port: int | None = option(
        None, "port of gRPC; 0: a free one, None: no gRPC", within="[0, 65535]"
    )
    gpu_index: int = option(0, "the GPU to use, if any (PLSC)", lower=0)

    latency_ms: float = option(
        100.0, "milliseconds in which to answer an image", within="(0, inf)"
    )
    max_batch_images: int = option(
        32, "most images in a batch", within="[1, 1024]", check=checks.power_of_two
    )
    parallel_batches: int = option(2, "batches computed at the same time", lower=1)
    queue_images: int = option(1024, "images that may wait; others get 503", lower=1)

    max_request_images: int = option(256, "most images of a request", lower=1)
    max_body_mb: float = option(
        32.0, "megabytes of a request's body", within="(0, inf)"
    )
    max_image_mb: float = option(
        8.0, "megabytes of an encoded image", within="(0, inf)"
    )
    max_megapixels: float = option(
        16.0, "most million pixels of an image, and of a batch", within="(0, inf)"
    )
    max_receiving_mb: float = option(
        512.0, "most megabytes of bodies in memory at once", within="(0, inf)"
    )
    max_connections: int = option(1024, "most connections at the same time", lower=1)
    receive_timeout: float = option(
        20.0, "seconds to receive a head, a body, an answer each", within="(0, inf)"
    )
    answer_timeout: float = option(
        30.0, "seconds that an image may take, queue included", within="(0, inf)"
    )
    drain_timeout: float = option(20.0, "seconds for requests after SIGTERM", lower=0)

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
