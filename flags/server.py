"""Defines the options for serving an exported model."""

import functools
import ipaddress

from plsc_tf.flags import checks
from plsc_tf.flags.option import Amount, Count, OptionGroup, Positive, option
from plsc_tf.requirements import require

_above_0 = functools.partial(option, within="(0, inf)")


class Server(OptionGroup, saved=False):
    """Options of `python -m plsc_tf.serve`: models, addresses and limits."""

    model_path: str = option(
        "", "folder of an export's versions, or one of them; --model_dir works too"
    )
    served_name: str = option(
        "", "model name in URLs; empty: the last part of model_path (TF Serving)"
    )
    num_versions: Positive = option(1, "number of newest versions to serve")
    poll_seconds: Amount = option(
        1.0, "seconds between checks for new versions; 0: none (TF Serving)"
    )

    host: str = option(
        "127.0.0.1", "address to listen on; 0.0.0.0: all, which needs api_keys_file"
    )
    port: int = option(8866, "HTTP port; 0: any free port (PLSC)", within="[0, 65535]")
    grpc_port: int | None = option(
        None, "gRPC port; 0: any free port; None: no gRPC", within="[0, 65535]"
    )
    gpu_index: Count = option(0, "index of the GPU to use, if any (PLSC)")

    api_keys_file: str = option(
        "", "file with clients' keys, their rights and rates; empty: no keys"
    )
    tls_certificate: str = option(
        "", "PEM file with the certificate and its chain; empty: no encryption"
    )
    tls_key: str = option("", "PEM file with the private key of tls_certificate")
    allowed_hosts: tuple[str, ...] = option(
        (), "more names of this server in Host, and names of web sites in Origin"
    )
    insecure: bool = option(False, "let other machines connect without keys")

    latency_ms: float = _above_0(100.0, "milliseconds in which to answer an image")
    max_batch_images: int = option(
        32, "largest batch, in images", within="[1, 1024]", check=checks.power_of_two
    )
    parallel_batches: Positive = option(2, "batches to compute at the same time")
    queue_images: Positive = option(
        1024, "images that may wait; further requests are answered with 503"
    )

    max_request_images: Positive = option(256, "largest number of images in a request")
    max_body_mb: float = _above_0(32.0, "largest request body, in megabytes")
    max_image_mb: float = _above_0(8.0, "largest encoded image, in megabytes")
    max_megapixels: float = _above_0(
        16.0, "largest image or batch to decode, in megapixels", saved=True
    )
    max_receiving_mb: float = _above_0(
        512.0, "largest total of requests and answers in memory, in megabytes"
    )
    max_connections: Positive = option(
        1024, "largest number of simultaneous connections"
    )
    receive_timeout: float = _above_0(
        20.0, "seconds for each of: request headers, request body, sending the answer"
    )
    answer_timeout: float = _above_0(
        30.0, "seconds to answer an image, including the queue"
    )
    drain_timeout: Amount = option(20.0, "seconds to complete requests after SIGTERM")

    gallery_dir: str = option("", "folder of a gallery of known faces; empty: none")
    detect: str = option("", "detector of faces, mtcnn or 'module:name'; empty: none")

    def __post_init__(self):
        super().__post_init__()
        certificate, key = self.tls_certificate, self.tls_key
        together = bool(certificate) == bool(key)
        rule = "tls_certificate and tls_key must be set together"
        require(together, rule, tls_certificate=repr(certificate), tls_key=repr(key))
        safe = self.local or self.api_keys_file or self.insecure
        rule = "A server that other machines can reach must have clients' keys"
        advice = "Set api_keys_file, or insecure: everyone may then change the gallery"
        require(safe, rule, advice, host=repr(self.host))

    @property
    def local(self) -> bool:
        """True if only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
