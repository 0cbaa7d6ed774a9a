"""TF Serving's REST formats: tensors as JSON, and a model's status and metadata.

The "Predict API" in https://www.tensorflow.org/tfx/serving/api_rest defines the format
of tensors. The gRPC services use the same messages for status and metadata.
"""

import binascii
import contextlib
import json
from collections.abc import Callable, Sequence

import google.protobuf
import numpy as np
import orjson
from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

from plsc_tf.serving.server.errors import invalid, too_large
from plsc_tf.serving.server.limits import check_count

ROW, COLUMN = "instances", "inputs"
_BASE64 = bytes.maketrans(b"-_", b"+/")
# Values of JSON in a request: 15 images of 112 x 112 pixels as lists of numbers. Lists
# and keys count more, because they take longer.
_MANY, _COSTS = 1_000_000, {b",": 1, b"[": 2, b"{": 2, b":": 9}
_UNKNOWN = 2  # error_codes.proto
# Prints fields with default values; TensorFlow 2.17 takes protobuf 4.
_WITH_DEFAULTS = (
    "including_default_value_fields"
    if google.protobuf.__version__.startswith(("3.", "4."))
    else "always_print_fields_with_no_presence"
)


def read_json(body: bytes) -> dict:
    """Returns the JSON object in a request's body.

    Raises:
        RequestError: the body is not a JSON object, or has too many values.
    """
    # Python's lock is held while JSON is parsed.
    counts = (body.count(part) * cost for part, cost in _COSTS.items())
    if len(body) * max(_COSTS.values()) > _MANY and sum(counts) > _MANY:
        raise too_large(f"A request may contain at most {_MANY} values of JSON.")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise invalid(f"JSON Parse error: {error}") from None
    if not isinstance(value, dict):
        raise invalid("JSON Parse error: the document is not an object")
    return value


def read_images(body: bytes, most: int, keys: Sequence[str]) -> dict:
    """Reads a request of PLSC's formats and decodes its images.

    Args:
        body: the request's JSON.
        most: largest number of images.
        keys: further keys of the request that are returned. Others could fill the
            memory until the answer.

    Returns:
        The request's JSON object, with a list of bytes as `base64_string`.

    Raises:
        RequestError: `base64_string` is not a list, or too long, or an image is not
            valid base64.
    """
    request = read_json(body)
    texts = request.get("base64_string")
    if not isinstance(texts, list):
        raise invalid("base64_string must be a list of base64 strings.")
    check_count(len(texts), most)
    images = [decode_base64(text) for text in texts]
    if None in images:
        raise invalid(f"Item {images.index(None)} of base64_string is not base64.")
    kept = {key: request[key] for key in keys if key in request}
    return {**kept, "base64_string": images}


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


def read_inputs(body: bytes, find_input: Callable, most: int) -> tuple:
    """Reads a request's `instances` or `inputs`.

    Args:
        body: the request's JSON.
        find_input: function from the name of a signature to its (name, name of the
            input, dtype, shape); the dtype is object for strings, the shape's first
            size may be None.
        most: largest number of rows.

    Returns:
        (signature, `ROW` or `COLUMN`, array `[N, ...]` or list of N bytes or pairs).

    Raises:
        RequestError: the request does not fit the signature.
    """
    request = read_json(body)
    signature = request.get("signature_name", "")
    if not isinstance(signature, str):
        raise invalid("signature_name must be a string.")
    signature, name, dtype, shape = find_input(signature)
    if (ROW in request) == (COLUMN in request):
        raise invalid("The request must have either 'instances' or 'inputs'.")
    form = COLUMN if COLUMN in request else ROW
    rows = _unnamed(request[form], name) if form == COLUMN else request[form]
    if not isinstance(rows, list) or not rows:
        raise invalid(f"{form!r} must be a list with at least one item.")
    check_count(len(rows), most)
    if form == ROW:
        rows = [_unnamed(row, name) for row in rows]
    if dtype.kind == "O":
        read = _string if len(shape) == 1 else _pair
        return signature, form, [read(name, *row) for row in enumerate(rows)]
    return signature, form, np.stack([_array(name, row, dtype, shape) for row in rows])


def _unnamed(value, name):
    """Returns the value of {name: value}; the name is optional."""
    if not isinstance(value, dict) or _is_base64(value):
        return value
    if list(value) != [name]:
        raise invalid(f"An object of inputs must have only the key {name!r}.")
    return value[name]


def _is_base64(value):
    return isinstance(value, dict) and list(value) == ["b64"]


def _array(name, row, dtype, shape):
    # As other arrays, numpy would pad all strings to the longest one, and convert any
    # types to each other.
    array = np.array(row, object)
    if array.shape != (*shape[1:],):
        raise invalid(f"Input {name} must have shape {shape}.")
    with np.errstate(over="ignore"), contextlib.suppress(OverflowError):
        if set(map(type, array.flat)) <= {int, float}:
            return array.astype(dtype)
    raise invalid(f"Input {name} must have the dtype {dtype.name}.")


def _string(name, index, value):
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    data = decode_base64(value["b64"]) if _is_base64(value) else None
    if data is None:
        expected = 'a string or {"b64": base64}'
        raise invalid(f"Item {index} of input {name} must be {expected}.")
    return data


def _pair(name, index, value):
    if not isinstance(value, list) or len(value) != 2:
        raise invalid(f"Item {index} of input {name} must be a list of two images.")
    return [_string(name, index, one) for one in value]


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
    else:
        value = outputs if form == COLUMN else rows(outputs)
    return write_json({"predictions" if form == ROW else "outputs": value})


def rows(outputs: dict[str, np.ndarray]) -> list[dict]:
    """Returns {output name: value} of each row of outputs `[N, ...]`."""
    columns = zip(*outputs.values(), strict=True)
    return [dict(zip(outputs, row, strict=True)) for row in columns]


def status(models, *which) -> get_model_status_pb2.GetModelStatusResponse:
    """Returns the states of a model's versions."""
    answer = get_model_status_pb2.GetModelStatusResponse()
    states = get_model_status_pb2.ModelVersionStatus.State
    for number, (state, message) in models.status(*which).items():
        one = answer.model_version_status.add(version=number, state=states.Value(state))
        one.status.error_code = _UNKNOWN if message else 0
        one.status.error_message = message
    return answer


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
    """Returns the metadata as JSON, with the origins that the export states."""
    value = _fields(metadata(models, *which)) | models.get(*which).origins
    del value["metadata"]["signature_def"]["@type"]  # as TF Serving does
    return json.dumps(value, indent=1).encode()


def _fields(message):
    options = {"preserving_proto_field_name": True, _WITH_DEFAULTS: True}
    return json_format.MessageToDict(message, **options)
