r"""Serves an exported model over HTTP and gRPC.

    python -m plsc_tf.serve --model_dir=serving/face --port=8010
    python -m plsc_tf.serve --model_dir=serving/face --port=8010 --grpc_port=8500 \
        --host=0.0.0.0 --api_keys_file=keys --gallery_dir=people

The server supports PLSC's protocol (POST /FaceClassifyService/inference) and TensorFlow
Serving's (REST and gRPC). It loads new version folders as they appear. On SIGTERM, it
finishes running requests before it exits.
"""

import re
import sys
from collections.abc import Sequence

from plsc_tf.options import cli
from plsc_tf.options.settings import Settings

GROUPS = ("server",)


def main(settings: Settings) -> None:
    """Serves the model until the process receives a signal."""
    if not settings.server.model_path:
        raise cli.UsageError(
            "model_dir must name the folder of an export, which contains its versions "
            "1, 2, ...: --model_dir=output/export. Received: model_dir=''."
        )
    from plsc_tf.serving import plsc_server

    # While a thread parses a large request, the event loop waits this long for Python's
    # lock, several times per answer. Python's own 5 ms delayed it by up to a second.
    sys.setswitchinterval(0.001)
    plsc_server.run(settings.server, _print_ports)


def _print_ports(app):
    rpc = "" if app.grpc_port is None else f" grpc_port={app.grpc_port}"
    sys.stdout.write(f"serving port={app.port}{rpc}\n")
    sys.stdout.flush()


def arguments(argv: Sequence[str]) -> list[str]:
    """Replaces model_dir, in other commands an alias of checkpoint_dir, by model_path.

    Args:
        argv: the arguments after the program's name.
    """
    return [re.sub("^--?model_dir(?==|$)", "--model_path", word) for word in argv]


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__, argv=arguments(sys.argv[1:]))
