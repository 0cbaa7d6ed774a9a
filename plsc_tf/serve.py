r"""Serves an exported model over HTTP and gRPC.

    python -m plsc_tf.serve --model_dir=serving/face --port=8010
    python -m plsc_tf.serve --model_dir=serving/face --port=8010 --grpc_port=8500 \
        --host=0.0.0.0 --gallery_dir=people

It speaks PLSC's format (POST /FaceClassifyService/inference) and TensorFlow Serving's
(REST and gRPC). New version folders are served as they appear. On SIGTERM it answers
the requests that have begun, then ends.
"""

import re
import sys
from collections.abc import Sequence

from plsc_tf.options import cli
from plsc_tf.options.settings import Settings

GROUPS = ("server",)


def main(settings: Settings) -> None:
    """Serves as the settings say, until a signal."""
    if not settings.server.model_path:
        raise cli.UsageError(
            "model_dir must name the folder with the version folders of an export: "
            "--model_dir=output/export. Received: model_dir=''."
        )
    from plsc_tf.serving import plsc_server

    plsc_server.run(settings.server, _say)


def _say(app):
    rpc = "" if app.grpc_port is None else f" grpc_port={app.grpc_port}"
    sys.stdout.write(f"serving port={app.port}{rpc}\n")
    sys.stdout.flush()


def arguments(argv: Sequence[str]) -> list[str]:
    """Replaces model_dir by model_path; elsewhere it is an alias of checkpoint_dir.

    Args:
        argv: the arguments after the program's name.
    """
    return [re.sub("^--?model_dir(?==|$)", "--model_path", word) for word in argv]


if __name__ == "__main__":
    cli.main(main, groups=GROUPS, doc=__doc__, argv=arguments(sys.argv[1:]))
