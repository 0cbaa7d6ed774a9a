"""TF Serving's REST formats: tensors as JSON, and a model's status and metadata.

The "Predict API" in https://www.tensorflow.org/tfx/serving/api_rest defines the format
of tensors. The gRPC services use the same messages for status and metadata.
"""

import base64
import binascii
import json
from collections.abc import Iterable

import numpy as np
import orjson
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from plsc_tf.serving.server.errors import invalid

ROW, COLUMN = "instances", "inputs"
# For each kind of input dtype, the kinds that numpy may infer from the JSON values.
_ALLOWED = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}
_TO_STANDARD = str.maketrans("-_", "+/")
_CODES = {"OK": 0, "UNKNOWN": 2}  # error_codes.proto


def read_json(body: bytes) -> dict:
    """Returns the JSON object in a request's body.

    Raises:
        RequestError: the body is not a JSON object.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid(f"JSON Parse error: {error}") from None
    if not isinstance(value, dict):
        raise invalid("JSON Parse error: the document is not an object")
    return value


def write_json(value, arrays: Iterable[np.ndarray] = ()) -> bytes:
    """Converts a value to JSON.

    Args:
        value: JSON value, which may contain numpy arrays and numbers.
        arrays: the arrays in `value` that may contain NaN or infinity, which orjson
            cannot write.
    """
    if all(array.dtype.kind != "f" or np.isfinite(array).all() for array in arrays):
        option = orjson.OPT_SERIALIZE_NUMPY
        return orjson.dumps(value, default=_as_list, option=option)
    return json.dumps(value, default=_as_list).encode()


def _as_list(array):
    return array.tolist()


def decode_base64(text: object) -> bytes | None:
    """Decodes a base64 string; returns None if it is not one.

    The URL-safe alphabet and missing "=" are accepted too.
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


def inputs_from_json(request: dict, specs: dict) -> tuple[str, dict]:
    """Reads the inputs from a request's `instances` or `inputs`.

    Args:
        request: the request's JSON object.
        specs: {input name: (numpy dtype, shape)} of the signature.

    Returns:
        (`ROW` or `COLUMN`, {input name: array `[N, ...]` or list of N bytes}).

    Raises:
        RequestError: the request does not fit the signature.
    """
    if ROW in request and COLUMN in request:
        raise invalid(
            "Not formatted correctly expecting only one of 'inputs' or 'instances' "
            "keys to exist"
        )
    if ROW in request:
        form, values = ROW, _from_rows(request[ROW], specs)
    elif COLUMN in request:
        form, values = COLUMN, _from_columns(request[COLUMN], specs)
    else:
        raise invalid("Missing 'inputs' or 'instances' key")
    return form, {name: _tensor(name, values[name], specs[name]) for name in specs}


def _from_rows(rows, specs):
    if not isinstance(rows, list):
        raise invalid("Expecting 'instances' to be a list/array")
    if not rows:
        raise invalid("No values in 'instances' array")
    named = _is_object(rows[0])
    if not named:
        _check_single("instances is a plain list, but expecting list of objects", specs)
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
    return {name: [row[name] if named else row for row in rows] for name in specs}


def _from_columns(value, specs):
    if not _is_object(value):
        _check_single("inputs is a plain value/list, but expecting an object", specs)
        return dict.fromkeys(specs, value)
    for name in specs:
        if name not in value:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return value


def _check_single(problem, specs):
    if len(specs) > 1:
        raise invalid(
            f"{problem} as multiple input tensors required as per tensorinfo_map"
        )


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
    if array.size and array.dtype.kind not in _ALLOWED.get(dtype.kind, ""):
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
    data = decode_base64(value["b64"])
    if data is None:
        raise invalid(f"Input {name}: item {index}: Unable to base64 decode")
    return data


def outputs_to_json(form: str, outputs: dict[str, np.ndarray]) -> bytes:
    """Converts outputs to JSON, as `predictions` or `outputs`.

    Args:
        form: the request's form, `ROW` or `COLUMN`.
        outputs: {output name: array `[N, ...]`}.

    Returns:
        The answer's JSON.
    """
    values = {
        name: _texts(array.tolist(), binary=name.endswith("_bytes"))
        if array.dtype.kind == "O"
        else array
        for name, array in outputs.items()
    }
    if len(values) == 1:
        (value,) = values.values()
    elif form == COLUMN:
        value = values
    else:
        rows = zip(*values.values(), strict=True)
        value = [dict(zip(values, row, strict=True)) for row in rows]
    key = "predictions" if form == ROW else "outputs"
    return write_json({key: value}, outputs.values())


def _texts(value, binary):
    if isinstance(value, list):
        return [_texts(item, binary) for item in value]
    data = value if isinstance(value, bytes) else str(value).encode()
    if binary:
        return {"b64": base64.b64encode(data).decode()}
    return data.decode("utf-8", "replace")


def status(models, *which) -> get_model_status_pb2.GetModelStatusResponse:
    """Returns the states of a model's versions."""
    response = get_model_status_pb2.GetModelStatusResponse()
    states = get_model_status_pb2.ModelVersionStatus.State
    for number, state, code, message in models.status(*which):
        one = response.model_version_status.add(
            version=number, state=states.Value(state)
        )
        one.status.error_code = _CODES[code]
        one.status.error_message = message
    return response


def metadata(models, name, *which) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """Returns a version's signatures."""
    version = models.get(name, *which)
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name = name
    response.model_spec.version.value = version.version
    response.metadata["signature_def"].Pack(_signature_map(version))
    return response


def _signature_map(version):
    message = get_model_metadata_pb2.SignatureDefMap()
    for name, signature in version.signature_defs.items():
        message.signature_def[name].CopyFrom(signature)
    return message


def status_json(models, *which) -> bytes:
    """Returns the status as JSON, including fields with default values."""
    return json.dumps(_fields(status(models, *which)), indent=1).encode()


def metadata_json(models, name, *which) -> bytes:
    """Returns the metadata as JSON.

    The version is a string, as protobuf's JSON mapping writes 64-bit integers.
    """
    version = models.get(name, *which)
    value = {
        "model_spec": {
            "name": name,
            "signature_name": "",
            "version": str(version.version),
        },
        "metadata": {"signature_def": _fields(_signature_map(version))},
    }
    return json.dumps(value, indent=1).encode()


def _fields(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, including_default_value_fields=True
    )
