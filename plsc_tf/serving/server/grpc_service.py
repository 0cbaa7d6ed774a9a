"""TF Serving's gRPC: PredictionService and ModelService."""

import math
import time

import grpc
import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow_serving.apis import (
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from plsc_tf.serving.server import rest
from plsc_tf.serving.server.errors import RequestError, invalid


def make_server(app) -> grpc.aio.Server:
    """A `grpc.aio` server of the running event loop, without a port yet.

    Args:
        app: the `App`, with its options, models and metrics.
    """
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", int(app.options.max_body_mb * 1e6)),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            # A connection whose other end is gone is noticed.
            ("grpc.keepalive_time_ms", 60_000),
            ("grpc.max_concurrent_streams", 256),
        ],
        maximum_concurrent_rpcs=app.options.max_connections,
    )
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(app.models, app.metrics), server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(
        ModelService(app.models), server
    )
    return server


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Predict and GetModelMetadata; the others need signatures of another kind."""

    def __init__(self, models, metrics):
        self._models, self._metrics = models, metrics

    async def Predict(self, request, context):
        """Runs a signature on tensors."""
        start, code = time.perf_counter(), "CANCELLED"
        try:
            response = await self._predict(request)
            code = "OK"
            return response
        except RequestError as error:
            code = error.grpc_code
            await _abort(context, error)
        except Exception:  # noqa: BLE001 - logged, and answered with INTERNAL
            logging.exception("Predict failed")
            code = "INTERNAL"
            await _abort(context, RequestError(code, "The server failed."))
        finally:
            self._metrics.request("grpc", code, time.perf_counter() - start)

    async def _predict(self, request):
        version = self._models.get(*_which(request.model_spec))
        signature = version.check_signature(request.model_spec.signature_name)
        inputs = _inputs(request.inputs, version.inputs(signature))
        outputs = await version.predict(signature, inputs)
        response = predict_pb2.PredictResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = version.version
        response.model_spec.signature_name = signature
        for name in list(request.output_filter) or outputs:
            if name not in outputs:
                raise invalid(
                    f"output tensor alias not found in signature: {name} Outputs "
                    f"expected to be in the set {{{','.join(outputs)}}}."
                )
            response.outputs[name].CopyFrom(tf.make_tensor_proto(outputs[name]))
        return response

    async def GetModelMetadata(self, request, context):
        """The signatures of a version."""
        try:
            for field in request.metadata_field:
                if field != "signature_def":
                    raise invalid(f"Metadata field {field} is not supported")
            if not request.metadata_field:
                raise invalid("GetModelMetadataRequest must specify at least one field")
            return rest.metadata(self._models, *_which(request.model_spec))
        except RequestError as error:
            await _abort(context, error)


class ModelService(model_service_pb2_grpc.ModelServiceServicer):
    """GetModelStatus; a change of the configuration is not offered."""

    def __init__(self, models):
        self._models = models

    async def GetModelStatus(self, request, context):
        """The states of a model's versions."""
        try:
            return rest.status(self._models, *_which(request.model_spec))
        except RequestError as error:
            await _abort(context, error)


def _which(spec):
    if not spec.name:
        raise invalid("Missing ModelSpec")
    version = spec.version.value if spec.HasField("version") else None
    return spec.name, version, spec.version_label or None


def _inputs(protos, specs):
    """The request's tensors as `Service.predict` takes them."""
    inputs = {}
    for name, proto in protos.items():
        # Unknown names are refused later.
        dtype, _ = specs.get(name, (None, None))
        inputs[name] = () if dtype is None else _input(name, proto, dtype)
    return inputs


def _input(name, proto, dtype):
    received = tf.dtypes.as_dtype(proto.dtype)
    if np.dtype(received.as_numpy_dtype) != dtype:
        raise invalid(
            f"Expected input {name} to be {tf.dtypes.as_dtype(dtype).name}. "
            f"Received: dtype {received.name}."
        )
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if dtype.kind == "O":
        if shape != [len(proto.string_val)]:
            raise invalid(
                f"Expected input {name} to be a list of strings. Received: shape "
                f"{shape} with {len(proto.string_val)} values."
            )
        return list(proto.string_val)
    # One value may not stand for many, as the format allows.
    if min(shape, default=0) < 0 or math.prod(shape) > proto.ByteSize():
        raise invalid(f"Input {name} has fewer values than its shape {shape} says.")
    try:
        return np.asarray(tf.make_ndarray(proto))
    except (ValueError, TypeError) as error:
        raise invalid(f"Input {name} is not a tensor: {error}") from None


async def _abort(context, error):
    if error.retry_after is not None:
        context.set_trailing_metadata((("retry-after", str(error.retry_after)),))
    await context.abort(getattr(grpc.StatusCode, error.grpc_code), error.message)
