"""Adds access keys to oss:// paths (Alibaba's object store), and masks them in text.

tensorflow-io expects the keys in a file's path. They are read from the environment and
added to paths when a data set is opened, and removed from all displayed text.
"""

import contextlib
import os
import re

from plsc_tf.storage import gfiles
from plsc_tf.storage.errors import StorageError
from plsc_tf.storage.paths import scheme_of

ID, SECRET, ENDPOINT = "OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_ENDPOINT"
# Keys in a path, in each form that tensorflow-io accepts, also as shown by `repr`.
_KEYS = re.compile(
    r"(oss://[^/\s]*?)(?:\x01|\\x01|\\001|\?)id=[^/\s]{0,999}?host=([^/\s'\",;]*)"
)
_ANY_KEY = re.compile(r"(?:\x01|\\x01|\\001|\x02|\\x02|\\002|[?&])(id|key)=[^/\s]*")


def is_oss(path):
    """Returns whether a path is on oss://."""
    return scheme_of(path) == "oss"


def holds_keys(path):
    """Returns whether a path contains access keys."""
    return is_oss(path) and masked(path) != path


def masked(text):
    """Returns the text with the keys removed from all oss:// paths."""
    return _ANY_KEY.sub("", _KEYS.sub(r"\1.\2", text)) if "oss://" in text else text


def with_keys(path):
    """Adds the keys to a path (`oss://bucket.endpoint/a` or `oss://bucket/a`).

    Returns:
        the path in the form that tensorflow-io expects.

    Raises:
        StorageError: the environment lacks a key or the endpoint, or tensorflow-io is
            missing.
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
    gfiles.find("oss://")
    keys = f"\x01id={values[ID]}\x02key={values[SECRET]}\x02host={values[ENDPOINT]}"
    return f"oss://{bucket}{keys}/{rest}"


@contextlib.contextmanager
def masking(path):
    """Removes the keys from errors raised in the block, if `path` is on oss://."""
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
