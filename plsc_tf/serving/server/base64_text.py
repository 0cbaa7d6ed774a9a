"""Base64 as requests carry it."""

import binascii

_TO_STANDARD = str.maketrans("-_", "+/")


def decode(text):
    """Returns the bytes of a base64 text, or None when it is none.

    The standard alphabet; that for URLs and missing "=" are taken too.
    """
    if not isinstance(text, str):
        return None
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        pass
    try:
        text = "".join(text.split()).rstrip("=").translate(_TO_STANDARD)
        return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except (binascii.Error, ValueError):
        return None
