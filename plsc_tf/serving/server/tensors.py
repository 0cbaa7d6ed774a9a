"""Inputs of a signature from JSON, as TF Serving reads them, and outputs to JSON.

The format: https://www.tensorflow.org/tfx/serving/api_rest, "Predict API".
"""

import base64

import numpy as np

from plsc_tf.serving.server import base64_text, json_text
from plsc_tf.serving.server.errors import invalid

ROW, COLUMN = "instances", "inputs"


def inputs_from_json(request, specs):
    """Reads `instances` or `inputs`.

    Args:
        request: the JSON object.
        specs: dict, input name -> (numpy dtype, shape), of the signature.

    Returns:
        (`ROW` or `COLUMN`, dict: input name -> array [N, ...] or list of N bytes).

    Raises:
        RequestError: it does not fit the signature.
    """
    if ROW in request and COLUMN in request:
        raise invalid(
            "Not formatted correctly expecting only one of 'inputs' or 'instances' "
            "keys to exist"
        )
    if ROW in request:
        return ROW, _from_rows(request[ROW], specs)
    if COLUMN in request:
        return COLUMN, _from_columns(request[COLUMN], specs)
    raise invalid("Missing 'inputs' or 'instances' key")


def _from_rows(rows, specs):
    if not isinstance(rows, list):
        raise invalid("Expecting 'instances' to be a list/array")
    if not rows:
        raise invalid("No values in 'instances' array")
    named = _is_object(rows[0])
    if not named and len(specs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple "
            "input tensors required as per tensorinfo_map"
        )
    for index, row in enumerate(rows):
        if _is_object(row) != named:
            raise invalid(
                f"Expecting {'object' if named else 'value/list'} at item {index} of "
                "input list"
            )
        if named and set(row) != set(specs):
            raise invalid(
                f"Failed to process element: {index} of 'instances' list. Keys must "
                f"be equal to: {','.join(specs)}"
            )
    if not named:
        (name,) = specs
        return {name: _tensor(name, rows, specs[name])}
    return {
        name: _tensor(name, [row[name] for row in rows], spec)
        for name, spec in specs.items()
    }


def _from_columns(value, specs):
    if not _is_object(value):
        if len(specs) > 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple "
                "input tensors required as per tensorinfo_map"
            )
        (name,) = specs
        return {name: _tensor(name, value, specs[name])}
    for name in specs:
        if name not in value:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: _tensor(name, value[name], spec) for name, spec in specs.items()}


def _is_object(value):
    return isinstance(value, dict) and not (
        len(value) == 1 and isinstance(value.get("b64"), str)
    )


def _tensor(name, value, spec):
    dtype, _ = spec
    if dtype.kind == "O":
        if not isinstance(value, list):
            raise invalid(f"Input {name}: expecting a list of strings")
        return [_string(name, index, one) for index, one in enumerate(value)]
    try:
        array = np.array(value)
    except ValueError:
        raise invalid(f"Input {name}: lists of unequal lengths") from None
    allowed = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}.get(dtype.kind, "")
    if array.size and array.dtype.kind not in allowed:
        raise invalid(f"Input {name}: value is not of expected type: {dtype.name}")
    if dtype.kind in "iu" and array.size:
        limits = np.iinfo(dtype)
        if array.min() < limits.min or array.max() > limits.max:
            raise invalid(f"Input {name}: a number does not fit {dtype.name}")
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def _string(name, index, value):
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if not isinstance(value, dict) or _is_object(value):
        raise invalid(
            f"Input {name}: item {index} is neither a string nor an object with the "
            "only key b64"
        )
    data = base64_text.decode(value["b64"])
    if data is None:
        raise invalid(f"Input {name}: item {index}: Unable to base64 decode")
    return data


def outputs_to_json(form, outputs):
    """Writes `predictions` or `outputs`, by the form of the request.

    Args:
        form: `ROW` or `COLUMN`.
        outputs: dict, output name -> array [N, ...].

    Returns:
        bytes of JSON.
    """
    arrays = {name: json_text.plain(array) for name, array in outputs.items()}
    texts = [name for name, array in outputs.items() if array.dtype.kind == "O"]
    for name in texts:
        arrays[name] = _texts(arrays[name], binary=name.endswith("_bytes"))
    if len(arrays) == 1:
        (value,) = arrays.values()
    elif form == COLUMN:
        value = arrays
    else:
        count = len(next(iter(arrays.values())))
        value = [{name: a[i] for name, a in arrays.items()} for i in range(count)]
        value = [
            {k: v.item() if isinstance(v, np.generic) else v for k, v in row.items()}
            for row in value
        ]
    key = "predictions" if form == ROW else "outputs"
    return json_text.write_any(
        {key: value}, [array for array in outputs.values() if array.dtype != object]
    )


def _texts(value, binary):
    if isinstance(value, list):
        return [_texts(item, binary) for item in value]
    data = value if isinstance(value, bytes) else str(value).encode()
    if binary:
        return {"b64": base64.b64encode(data).decode()}
    return data.decode("utf-8", "replace")
