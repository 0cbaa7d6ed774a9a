"""Reads plain data from untrusted pickles without running code from them.

A pickle is a program: `pickle.load` of a downloaded file lets its author run any code.
This reader supports lists, tuples, dicts, numbers, bytes and numeric numpy arrays and
rejects every other name before looking it up. It does not even call numpy's own
functions, because they trust the sizes that a pickle declares.
"""

import io
import pickle
import pickletools
from collections.abc import Callable

import numpy as np

# Maximum number of opcodes, and the bytes of a pickle that allow one more: an opcode of
# one byte can take 350 bytes of memory.
_MOST_OPCODES, _BYTES_PER_OPCODE = 200_000, 128
# Integers below this number, as keys, do not slow down a dict.
_MOST_KEYS = 10_000


def load_plain(data: bytes, path: str, *, names: dict | None = None, find=None):
    """Returns the object in a pickle that contains only plain data.

    Args:
        data: the pickle, in any protocol, from Python 2 or 3.
        path: path of the file, for error messages.
        names: more names to allow, `{(module, name): stand-in}`. The pickle can call a
            stand-in with any arguments.
        find: function that returns the object for a persistent ID, or None.

    Raises:
        ValueError: the pickle contains anything but plain data, or is corrupt.
    """
    buffer = io.BytesIO(data)
    reader = _PlainUnpickler(buffer, len(data), names or {}, find)
    try:
        _check_opcodes(data)
        return _resolve(reader.load(), {})
    except Exception as error:  # noqa: BLE001 - corrupt bytes raise anything
        if reader.refused:
            raise ValueError(
                f"{path} is refused: its pickle would call {reader.refused!r}. "
                "Nothing was run. Get the file from a source that you trust."
            ) from None
        raise ValueError(
            f"{path} is not a pickle of plain data, or is damaged or cut off: reading "
            f"ended at byte {buffer.tell() or len(data)} of {len(data)} ("
            f"{type(error).__name__}: {str(error)[:200]}). Copy the file again."
        ) from None


def _check_keys(keys) -> None:
    """Rejects keys that a file can choose to have equal hashes, which takes hours."""
    for key in keys:
        small = isinstance(key, int) and 0 <= key < _MOST_KEYS
        if not small and not isinstance(key, str | bytes):
            raise pickle.UnpicklingError(f"a key of the type {type(key).__name__}")


class _Table(dict):
    """Stands in for collections.OrderedDict."""

    def __init__(self, items):
        _check_keys(key for key, _ in items)
        super().__init__(items)

    def __setstate__(self, state):
        """Leaves out the attributes, which are not needed."""


def _plain_opcodes(known: dict) -> dict:
    """Returns the functions of opcodes without sets; some check their arguments."""

    def build(reader):
        # Others would copy the state again and again.
        if not hasattr(reader.stack[-2], "__setstate__"):
            raise pickle.UnpicklingError("a state of something else than an array")
        known[pickle.BUILD[0]](reader)

    def checked(load, keys):
        def check_and_load(reader):
            _check_keys(reader.stack[keys])
            load(reader)

        return check_and_load

    sets = pickle.EMPTY_SET + pickle.FROZENSET
    plain = {code: load for code, load in known.items() if code not in sets}
    for opcode in (pickle.SETITEM, pickle.SETITEMS, pickle.DICT):
        # The keys and values of one item are on top; those of several fill the stack.
        keys = slice(-2, -1) if opcode == pickle.SETITEM else slice(None, None, 2)
        plain[opcode[0]] = checked(known[opcode[0]], keys)
    return plain | {pickle.BUILD[0]: build}


# The implementation in C cannot check keys.
class _PlainUnpickler(pickle._Unpickler):
    """An unpickler that accepts only the names and keys needed for plain data."""

    dispatch = _plain_opcodes(pickle._Unpickler.dispatch)

    def __init__(self, buffer: io.BytesIO, size: int, names: dict, find):
        super().__init__(buffer, encoding="bytes")
        self.refused = ""
        self._names, self._find = {**_plain_names(size), **names}, find

    def persistent_load(self, pid):
        """Returns the object for a persistent ID."""
        return self._find(pid)

    def find_class(self, module, name):
        """Returns the object for an allowed name, without importing anything."""
        if (found := self._names.get((module, name))) is None:
            self.refused = f"{module}.{name}"
            raise pickle.UnpicklingError(self.refused)
        return found


def _check_opcodes(data: bytes) -> None:
    """Rejects pickles with more opcodes than plain data of their size needs.

    It also rejects byte arrays that are cut off, for which Python allocates memory
    before it reads on.
    """
    most, largest = _MOST_OPCODES + len(data) // _BYTES_PER_OPCODE, 0
    for number, (opcode, value, position) in enumerate(pickletools.genops(data)):
        if "PUT" in opcode.name:
            # Otherwise, the numbers of objects could make a dict slow.
            if value > largest + 1:
                raise pickle.UnpicklingError(f"it counts to {value} at byte {position}")
            largest = max(largest, value)
        if number == most:
            raise pickle.UnpicklingError(f"more than {most} opcodes at byte {position}")


class _Dtype:
    """Stands in for numpy.dtype: a numeric type by name, and its byte order."""

    def __init__(self, name):
        dtype = np.dtype(_text(name))
        if dtype.kind not in "biufS":
            raise pickle.UnpicklingError(f"arrays of {dtype} are not plain data")
        self.value = dtype

    def __setstate__(self, state):
        order = _text(state[1])
        self.value = self.value.newbyteorder(order if order in "<>" else "=")


class _Array:
    """Stands in for numpy.ndarray while its state is read."""

    value = None

    def __setstate__(self, state):
        _, shape, dtype, column_major, raw = state
        order = "F" if column_major else "C"
        self.value = np.frombuffer(raw, dtype.value).reshape(shape, order=order)


def _limiter(left: int) -> Callable:
    """Returns a function that returns its argument until their lengths exceed `left`.

    A few bytes of a pickle could otherwise copy a long value again and again.
    """

    def limited(value):
        nonlocal left
        left -= len(value)
        if left < 0:
            raise pickle.UnpicklingError("copies of more values than the file has")
        return value

    return limited


def _plain_names(size: int) -> dict:
    """Returns the names that lists of bytes and numpy arrays need.

    Creates new objects for each file, because a pickle may set attributes on them.

    Args:
        size: number of bytes in the pickle.
    """
    limited = _limiter(size)

    def to_bytes(value, encoding="latin1"):
        # Python 3 writes bytes this way in protocols 0 to 2.
        if _text(encoding) not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError(f"encoding {encoding!r}")
        return _text(limited(value), len(value)).encode("latin1")

    def copied(kind):
        # Only copy sequences: bytearray(10**12) would exhaust memory. A list would take
        # eight bytes for each byte.
        raw = () if kind in (list, tuple) else (bytes, bytearray)

        def copy(value=()):
            if not isinstance(value, (list, tuple, *raw)):
                raise pickle.UnpicklingError(f"{kind.__name__} of {type(value)}")
            return kind(limited(value))

        return copy

    def from_buffer(buffer, dtype, shape, order):
        array = _Array()
        array.__setstate__((1, shape, dtype, _text(order) == "F", buffer))
        return array

    names = {
        ("_codecs", "encode"): to_bytes,
        ("collections", "OrderedDict"): lambda items=(): _Table(copied(list)(items)),
        ("numpy", "ndarray"): object,
        ("numpy", "dtype"): lambda name, align=False, copy=True: _Dtype(name),
    }
    for module in ("builtins", "__builtin__"):
        for kind in (list, tuple, bytes, bytearray):
            names[module, kind.__name__] = copied(kind)
    for core in ("numpy.core", "numpy._core"):
        names[f"{core}.multiarray", "_reconstruct"] = lambda *_: _Array()
        names[f"{core}.multiarray", "scalar"] = lambda dtype, raw: np.frombuffer(
            limited(raw), dtype.value
        )[0]
        names[f"{core}.numeric", "_frombuffer"] = from_buffer
    return names


def _resolve(value, known: dict):
    """Replaces the stand-ins in lists, tuples and dicts with their arrays.

    Args:
        value: the unpickled object.
        known: results so far, `{id: (value, result)}`. A list that occurs several
            times, possibly within itself, is resolved once.
    """
    if isinstance(value, _Array | _Dtype):
        if value.value is None:
            raise pickle.UnpicklingError("an array without contents")
        return value.value
    if not isinstance(value, list | tuple | dict):
        return value
    if id(value) in known:
        return known[id(value)][1]
    result = {} if isinstance(value, dict) else []
    known[id(value)] = value, result
    if isinstance(value, dict):
        result.update((key, _resolve(item, known)) for key, item in value.items())
    else:
        result.extend(_resolve(item, known) for item in value)
    return result


def _text(value, most: int = 64) -> str:
    # Lists within each other could have a text of any length.
    if not isinstance(value, str | bytes) or len(value) > most:
        raise pickle.UnpicklingError(f"a {type(value).__name__} in place of a word")
    return value.decode("latin1") if isinstance(value, bytes) else value
