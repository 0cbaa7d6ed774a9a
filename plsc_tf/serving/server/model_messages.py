"""A model's status and metadata in TF Serving's messages and their JSON."""

import json

from google.protobuf import json_format
from tensorflow_serving.apis import get_model_metadata_pb2, get_model_status_pb2


def status(models, name, version=None, label=None):
    """A `GetModelStatusResponse`.

    Raises:
        RequestError: there is no such model or version.
    """
    response = get_model_status_pb2.GetModelStatusResponse()
    states = get_model_status_pb2.ModelVersionStatus.State
    for number, state, code, message in models.status(name, version, label):
        one = response.model_version_status.add(
            version=number, state=states.Value(state)
        )
        # OK or UNKNOWN, by their numbers in error_codes.proto.
        one.status.error_code = {"OK": 0, "UNKNOWN": 2}[code]
        one.status.error_message = message
    return response


def status_json(models, name, version=None, label=None):
    """The same as bytes of JSON, every field written."""
    return _json(_fields(status(models, name, version, label)))


def signature_map(servable):
    """A `SignatureDefMap` of a version."""
    message = get_model_metadata_pb2.SignatureDefMap()
    for name, signature in servable.model.signature_defs.items():
        message.signature_def[name].CopyFrom(signature)
    return message


def metadata(models, name, version=None, label=None):
    """A `GetModelMetadataResponse`.

    Raises:
        RequestError: there is no such model or version.
    """
    servable = models.get(name, version, label)
    response = get_model_metadata_pb2.GetModelMetadataResponse()
    response.model_spec.name = name
    response.model_spec.version.value = servable.version
    response.metadata["signature_def"].Pack(signature_map(servable))
    return response


def metadata_json(models, name, version=None, label=None):
    """The same as bytes of JSON; the version is a text, as 64-bit integers are."""
    servable = models.get(name, version, label)
    spec = {"name": name, "signature_name": "", "version": str(servable.version)}
    signatures = _fields(signature_map(servable))
    return _json({"model_spec": spec, "metadata": {"signature_def": signatures}})


def _fields(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, including_default_value_fields=True
    )


def _json(value):
    return json.dumps(value, indent=1).encode()
