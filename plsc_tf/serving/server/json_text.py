"""JSON of requests and answers; NaN and Infinity as TF Serving writes them."""

import json

import numpy as np
import orjson

from plsc_tf.serving.server.errors import invalid


def read(body):
    """Returns the JSON object in a request's body.

    Raises:
        RequestError: it is none.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        value = _with_nan(body, error)
    if not isinstance(value, dict):
        raise invalid("JSON Parse error: the document is not an object")
    return value


def _with_nan(body, error):
    if b"NaN" in body or b"Infinity" in body:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            pass
    raise invalid(f"JSON Parse error: {error}")


def write(value):
    """Returns bytes of JSON; numpy arrays of finite numbers are written fast."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def plain(array):
    """An array as `write` takes it, or nested lists where that would lose NaN."""
    if array.dtype == object or array.dtype.kind not in "fiub":
        return array.tolist()
    return np.ascontiguousarray(array)


def write_any(value, arrays):
    """As `write`, by Python's own writer when an array holds NaN or Infinity.

    Args:
        value: what to write; may hold the arrays.
        arrays: all arrays in it.
    """
    if all(a.dtype.kind != "f" or np.isfinite(a).all() for a in arrays):
        return write(value)
    return json.dumps(value, default=lambda array: array.tolist()).encode()
