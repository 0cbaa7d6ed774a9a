"""A model's status and metadata in TF Serving's messages and their JSON.

Every function takes the `Models` and the name, version and label of a request, and
raises `RequestError` if there is no such version.
"""

import json

from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2

_CODES = {"OK": 0, "UNKNOWN": 2}  # error_codes.proto


def status(models, *which) -> get_model_status_pb2.GetModelStatusResponse:
    """The states of a model's versions."""
    response = get_model_status_pb2.GetModelStatusResponse()
    states = get_model_status_pb2.ModelVersionStatus.State
    for number, state, code, message in models.status(*which):
        one = response.model_version_status.add(
            version=number, state=states.Value(state)
        )
        one.status.error_code = _CODES[code]
        one.status.error_message = message
    return response


def status_json(models, *which) -> bytes:
    """The same as JSON, every field written."""
    return _json(_fields(status(models, *which)))


def metadata(models, name, *which) -> get_model_metadata_pb2.GetModelMetadataResponse:
    """The signatures of a version."""
    version = models.get(name, *which)
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name = name
    response.model_spec.version.value = version.version
    response.metadata["signature_def"].Pack(_signature_map(version))
    return response


def metadata_json(models, name, *which) -> bytes:
    """The same as JSON; the version is a text, as 64-bit integers are."""
    version = models.get(name, *which)
    spec = {"name": name, "signature_name": "", "version": str(version.version)}
    signatures = _fields(_signature_map(version))
    return _json({"model_spec": spec, "metadata": {"signature_def": signatures}})


def _signature_map(version):
    message = get_model_metadata_pb2.SignatureDefMap()
    for name, signature in version.signature_defs.items():
        message.signature_def[name].CopyFrom(signature)
    return message


def _fields(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, including_default_value_fields=True
    )


def _json(value):
    return json.dumps(value, indent=1).encode()
