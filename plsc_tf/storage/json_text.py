"""JSON: parses that of strangers, and writes numbers that JSON does not have."""

import json
from typing import Any

from plsc_tf.requirements import require

# A byte of nested objects takes 40 bytes of memory, and many more when it is written
# with indentation.
_MOST_VALUES, _MOST_DEPTH = 1 << 21, 32


def parse(text: bytes, path: str) -> Any:
    """Returns the content of a JSON text.

    Args:
        text: the text.
        path: where it is from, for messages.

    Raises:
        ValueError: it is no JSON, or has too many or too deeply nested values.
    """
    values = sum(map(text.count, b"[{,:"))
    require(values <= _MOST_VALUES, f"{path} must have at most {_MOST_VALUES:,} values")
    content = json.loads(text)
    inner = [content]
    for _ in range(_MOST_DEPTH):
        inner = [value for one in inner for value in _values(one)]
    require(not inner, f"{path} must be nested at most {_MOST_DEPTH} deep")
    return content


def finite(value: Any) -> str:
    """Returns a value as JSON on one line; NaN and infinity become null."""
    return json.dumps(json.loads(json.dumps(value), parse_constant=lambda name: None))


def _values(value):
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
