"""TF Serving's REST formats: tensors as JSON, and a model's status and metadata.

The "Predict API" in https://www.tensorflow.org/tfx/serving/api_rest defines the format
of tensors. The gRPC services use the same messages for status and metadata.
"""

import binascii
import json

import google.protobuf
import numpy as np
import orjson
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from plsc_tf.serving.server.errors import invalid

ROW, COLUMN = "instances", "inputs"
# For each kind of input dtype, the types of its JSON values; integers have only int.
_TYPES = {"f": {int, float}, "b": {bool}}
_BASE64 = bytes.maketrans(b"-_", b"+/")
_CODES = {"OK": 0, "UNKNOWN": 2}  # error_codes.proto
# Prints fields with default values; TensorFlow 2.17 takes protobuf 4.
_WITH_DEFAULTS = (
    "including_default_value_fields"
    if google.protobuf.__version__.startswith(("3.", "4."))
    else "always_print_fields_with_no_presence"
)


def read_json(body: bytes) -> dict:
    """Returns the JSON object in a request's body.

    Raises:
        RequestError: the body is not a JSON object.
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid(f"JSON Parse error: {error}") from None
    if not isinstance(value, dict):
        raise invalid("JSON Parse error: the document is not an object")
    return value


def write_json(value) -> bytes:
    """Converts a value, which may contain numpy arrays and numbers, to JSON.

    NaN and infinity become null.
    """
    return orjson.dumps(value, np.ndarray.tolist, orjson.OPT_SERIALIZE_NUMPY)


def decode_base64(text: object) -> bytes | None:
    """Decodes a base64 string; returns None if it is not one.

    The URL-safe alphabet and missing "=" are accepted too.
    """
    if not isinstance(text, str):
        return None
    try:
        data = text.encode("ascii").translate(_BASE64, b" \t\n\v\f\r").rstrip(b"=")
        return binascii.a2b_base64(data + b"=" * (-len(data) % 4), strict_mode=True)
    except ValueError:
        return None


def input_from_json(request: dict, name: str, dtype: np.dtype, shape: list) -> tuple:
    """Reads the input from a request's `instances` or `inputs`.

    Args:
        request: the request's JSON object.
        name: the input's name.
        dtype: the input's dtype; object for strings.
        shape: the input's shape, whose first size may be None.

    Returns:
        (`ROW` or `COLUMN`, array `[N, ...]` or list of N bytes).

    Raises:
        RequestError: the request does not fit the signature.
    """
    if (ROW in request) == (COLUMN in request):
        raise invalid("The request must have either 'instances' or 'inputs'.")
    if COLUMN in request:
        return COLUMN, _tensor(name, _unnamed(request[COLUMN], name), dtype, shape)
    rows = request[ROW]
    if not isinstance(rows, list) or not rows:
        raise invalid("'instances' must be a list with at least one item.")
    return ROW, _tensor(name, [_unnamed(row, name) for row in rows], dtype, shape)


def _unnamed(value, name):
    """Returns the value of {name: value}; the name is optional."""
    if not isinstance(value, dict) or _is_base64(value):
        return value
    if list(value) != [name]:
        raise invalid(f"An object of inputs must have only the key {name!r}.")
    return value[name]


def _is_base64(value):
    return isinstance(value, dict) and list(value) == ["b64"]


def _tensor(name, value, dtype, shape):
    if dtype.kind == "O":
        if not isinstance(value, list):
            raise invalid(f"Input {name!r} must be a list of strings or b64 objects.")
        return [_string(name, index, one) for index, one in enumerate(value)]
    # Check sizes and types first: numpy pads all strings to the longest one, so a long
    # string among many short ones would take terabytes.
    sizes, values = [], [value]
    for size in shape:
        lengths = {len(one) if isinstance(one, list) else "none" for one in values}
        if len(lengths) != 1 or "none" in lengths or size not in (None, *lengths):
            found = f"{' and '.join(map(str, [*lengths][:2]))} (size {len(sizes)})"
            raise invalid(f"Input {name} must have shape {shape}. Received: {found}.")
        sizes += lengths
        values = [item for one in values for item in one]
    fitting = set(map(type, values)) <= _TYPES.get(dtype.kind, {int})
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.array(values if fitting else []).astype(dtype)
    if not fitting or (dtype.kind != "f" and array.tolist() != values):
        raise invalid(f"Input {name} must have the dtype {dtype.name}.")
    return array.reshape(sizes)


def _string(name, index, value):
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    data = decode_base64(value["b64"]) if _is_base64(value) else None
    if data is None:
        expected = 'a string or {"b64": base64}'
        raise invalid(f"Item {index} of input {name} must be {expected}.")
    return data


def outputs_to_json(form: str, outputs: dict[str, np.ndarray]) -> bytes:
    """Converts outputs to JSON, as `predictions` or `outputs`.

    Args:
        form: the request's form, `ROW` or `COLUMN`.
        outputs: {output name: array `[N, ...]`}.

    Returns:
        The answer's JSON.
    """
    if len(outputs) == 1:
        (value,) = outputs.values()
    elif form == COLUMN:
        value = outputs
    else:
        rows = zip(*outputs.values(), strict=True)
        value = [dict(zip(outputs, row, strict=True)) for row in rows]
    return write_json({"predictions" if form == ROW else "outputs": value})


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
    signatures = get_model_metadata_pb2.SignatureDefMap()
    for signature, definition in version.signature_defs.items():
        signatures.signature_def[signature].CopyFrom(definition)
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name = name
    response.model_spec.version.value = version.version
    response.metadata["signature_def"].Pack(signatures)
    return response


def status_json(models, *which) -> bytes:
    """Returns the status as JSON, including fields with default values."""
    return json.dumps(_fields(status(models, *which)), indent=1).encode()


def metadata_json(models, *which) -> bytes:
    """Returns the metadata as JSON."""
    value = _fields(metadata(models, *which))
    del value["metadata"]["signature_def"]["@type"]  # as TF Serving does
    return json.dumps(value, indent=1).encode()


def _fields(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, **{_WITH_DEFAULTS: True}
    )
