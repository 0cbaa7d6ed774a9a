"""Requests that TensorFlow Serving sends to a model itself, before others may.

It reads `assets.extra/tf_serving_warmup_requests`, a TFRecord file of at most 1000
`tensorflow.serving.PredictionLog` (servables/tensorflow/saved_model_warmup_util.cc).
The messages are described here, with the field numbers of tensorflow_serving/apis/
{prediction_log,predict,model}.proto, so that no export needs tensorflow-serving-api.
"""

import os

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from plsc_tf.storage import files

NAME = "tf_serving_warmup_requests"
_PACKAGE = "tensorflow.serving"
_TEXT = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
# A TensorProto as the bytes that it is on the wire: the two encodings are the same.
_BYTES = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_FIELDS = {
    "ModelSpec": (("name", 1, _TEXT), ("signature_name", 3, _TEXT)),
    "Input": (("key", 1, _TEXT), ("value", 2, _BYTES)),
    "PredictRequest": (("model_spec", 1, "ModelSpec"), ("inputs", 2, "Input")),
    "PredictLog": (("request", 1, "PredictRequest"),),
    "PredictionLog": (("predict_log", 6, "PredictLog"),),
}


def write(folder, model_name, requests):
    """Writes the requests of a SavedModel.

    Args:
        folder: of the SavedModel.
        model_name: that it is served by; TF Serving does not look at it.
        requests: list of (signature, {input: array or list of bytes}).
    """
    make = _message_class("PredictionLog")
    extra = os.path.join(folder, "assets.extra")
    files.make_dirs(extra)
    with tf.io.TFRecordWriter(os.path.join(extra, NAME)) as file:
        for signature, inputs in requests:
            log = make()
            request = log.predict_log.request
            request.model_spec.name = model_name
            request.model_spec.signature_name = signature
            for name, value in inputs.items():
                tensor = tf.make_tensor_proto(value).SerializeToString()
                request.inputs.add(key=name, value=tensor)
            file.write(log.SerializeToString())


def _message_class(name):
    """A class for a message, in a pool of its own: tensorflow_serving may be there."""
    file = descriptor_pb2.FileDescriptorProto(
        name="warmup.proto", package=_PACKAGE, syntax="proto3"
    )
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for field, number, kind in fields:
            one = described.field.add(name=field, number=number)
            # A map is a repeated message of key and value.
            repeated = kind == "Input"
            one.label = one.LABEL_REPEATED if repeated else one.LABEL_OPTIONAL
            one.type = one.TYPE_MESSAGE if isinstance(kind, str) else kind
            if isinstance(kind, str):
                one.type_name = f".{_PACKAGE}.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")
    return message_factory.GetMessageClass(found)
