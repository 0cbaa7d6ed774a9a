"""Reads oss:// paths (Alibaba's object store) through tensorflow-io.

tensorflow-io expects the access keys in each path. They are read from the environment
and added here, where it is called, and removed from the text of its errors, so that no
other code sees them.
"""

import os
import re

from plsc_tf.storage.errors import StorageError

ID, SECRET, ENDPOINT = "OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_ENDPOINT"
# Keys in a path, in each form that tensorflow-io accepts, also as shown by `repr`.
_KEYS = re.compile(r"(?:\x01|\\x01|\\001|\x02|\\x02|\\002|[?&])(id|key)=[^/\s]*")


def masked(text):
    """Returns the text with the keys removed from all oss:// paths."""
    return _KEYS.sub("", text) if "oss://" in text else text


def with_keys(path):
    """Adds the keys to a path (`oss://bucket.endpoint/a` or `oss://bucket/a`).

    Returns:
        the path in the form that tensorflow-io expects.

    Raises:
        StorageError: the environment lacks a key or the endpoint.
    """
    bucket, _, rest = path.partition("://")[2].partition("/")
    bucket, _, endpoint = bucket.partition(".")
    values = {name: os.environ.get(name, "") for name in (ID, SECRET)}
    values[ENDPOINT] = endpoint or os.environ.get(ENDPOINT, "")
    for name, value in values.items():
        if not value or re.search(r"[\s/\x01\x02]", value):
            raise StorageError(
                f"{path} needs {ID} and {SECRET} in the environment; also {ENDPOINT} "
                "(without https://), unless the address is oss://bucket.endpoint/"
                f"folder. {name} {'has a space or slash' if value else 'is not set'}."
            )
    keys = f"\x01id={values[ID]}\x02key={values[SECRET]}\x02host={values[ENDPOINT]}"
    return f"oss://{bucket}{keys}/{rest}"


class OssFiles:
    """The functions of `tf.io.gfile` that read; adds the keys to their paths.

    Args:
        gfile: the module `tf.io.gfile`.
    """

    def __init__(self, gfile):
        self._gfile = gfile

    def __getattr__(self, name):
        function = getattr(self._gfile, name)
        return lambda path, *mode: function(with_keys(path), *mode)
