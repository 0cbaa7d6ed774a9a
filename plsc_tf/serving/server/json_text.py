"""JSON and base64 of requests and answers; NaN and Infinity as TF Serving has them."""

import binascii
import json
from collections.abc import Iterable

import numpy as np
import orjson

from plsc_tf.serving.server.errors import invalid

_TO_STANDARD = str.maketrans("-_", "+/")


def read(body: bytes) -> dict:
    """Returns the JSON object in a request's body.

    Raises:
        RequestError: the body is not a JSON object.
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


def write(value, arrays: Iterable[np.ndarray] = ()) -> bytes:
    """Returns bytes of JSON.

    Args:
        value: may hold numpy arrays and numbers.
        arrays: those that may hold NaN or Infinity, which orjson cannot write.
    """
    if all(array.dtype.kind != "f" or np.isfinite(array).all() for array in arrays):
        option = orjson.OPT_SERIALIZE_NUMPY
        return orjson.dumps(value, default=_as_list, option=option)
    return json.dumps(value, default=_as_list).encode()


def _as_list(array):
    return array.tolist()


def decode_base64(text: object) -> bytes | None:
    """Returns the bytes of a base64 text, None if it is not one.

    The alphabet for URLs and missing "=" are accepted too.
    """
    if not isinstance(text, str):
        return None
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        pass
    try:
        text = "".join(text.split()).rstrip("=").translate(_TO_STANDARD)
        return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except ValueError:
        return None
