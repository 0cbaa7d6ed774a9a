"""Alibaba's object store, oss://, whose images are read through tensorflow-io.

tensorflow-io reads the keys from the path of a file. So paths get them from the
environment where a data set is opened, and lose them in every text that is shown.
"""

import contextlib
import os
import re

from plsc_tf.storage import hdfs
from plsc_tf.storage.errors import StorageError
from plsc_tf.storage.paths import scheme_of

ID, SECRET, ENDPOINT = "OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_ENDPOINT"
# The keys in a path, also as `repr` shows it, and as tensorflow-io takes them too.
_KEYS = re.compile(
    r"(oss://[^/\s]*?)(?:\x01|\\x01|\\001|\?)id=[^/\s]*?host=([^/\s'\",;]*)"
)
_ANY_KEY = re.compile(r"(?:\x01|\\x01|\\001|\x02|\\x02|\\002|[?&])(id|key)=[^/\s]*")


def is_oss(path):
    """Whether a path is on oss://."""
    return scheme_of(path) == "oss"


def holds_keys(path):
    """Whether someone wrote keys into a path."""
    return is_oss(path) and masked(path) != path


def masked(text):
    """Returns a text in which no path on oss:// shows its keys."""
    return _ANY_KEY.sub("", _KEYS.sub(r"\1.\2", text)) if "oss://" in text else text


def with_keys(path):
    """Returns `oss://bucket.endpoint/a` or `oss://bucket/a` as tensorflow-io takes it.

    Raises:
        StorageError: a key or the endpoint is not in the environment, or tensorflow-io
            is missing.
    """
    import tensorflow as tf

    bucket, _, rest = path.partition("://")[2].partition("/")
    bucket, _, endpoint = bucket.partition(".")
    values = {name: os.environ.get(name, "") for name in (ID, SECRET)}
    values[ENDPOINT] = endpoint or os.environ.get(ENDPOINT, "")
    for name, value in values.items():
        if not value or re.search(r"[\s/\x01\x02]", value):
            raise StorageError(
                f"{path} needs {ID}, {SECRET} and, unless the address has it as "
                f"oss://bucket.endpoint/folder, {ENDPOINT} (without https://) in the "
                f"environment. Received: {name} {'not usable' if value else 'not set'}."
            )
    if "oss" not in tf.io.gfile.get_registered_schemes():
        told = hdfs.load_plugins()
        if "oss" not in tf.io.gfile.get_registered_schemes():
            raise StorageError(f"TensorFlow has no file system for oss://. {told}")
    keys = f"\x01id={values[ID]}\x02key={values[SECRET]}\x02host={values[ENDPOINT]}"
    return f"oss://{bucket}{keys}/{rest}"


@contextlib.contextmanager
def masking(path):
    """Raises errors within it without keys, where `path` is on oss://."""
    if not is_oss(path):
        yield
        return
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        raise StorageError(masked(str(error.message))) from None
    except (OSError, ValueError) as error:
        kind = ValueError if isinstance(error, ValueError) else StorageError
        raise kind(masked(str(error))) from None
