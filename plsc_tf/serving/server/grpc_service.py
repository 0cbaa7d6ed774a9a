"""TF Serving's gRPC services: PredictionService and ModelService."""

import functools
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
    """Creates a `grpc.aio` server in the running event loop, without a port.

    Args:
        app: the `App`, with its options, models and metrics.
    """
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", int(app.options.max_body_mb * 1e6)),
            ("grpc.max_send_message_length", -1),
            ("grpc.so_reuseport", 0),
            # Pings detect connections whose client has disappeared.
            ("grpc.keepalive_time_ms", 60_000),
            ("grpc.max_concurrent_streams", 256),
        ],
        maximum_concurrent_rpcs=app.options.max_connections,
    )
    services = Services(app.models, app.metrics)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        services, server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(services, server)
    return server


def _answered(method):
    """Wraps a method (self, request) to answer with gRPC errors and count requests."""

    @functools.wraps(method)
    async def answer(self, request, context):
        start, code = time.perf_counter(), "CANCELLED"
        try:
            response = await method(self, request)
            code = "OK"
            return response
        except RequestError as error:
            code = error.code
            await _abort(context, error)
        except Exception:  # noqa: BLE001 - logged, and answered with INTERNAL
            logging.exception("%s failed", method.__name__)
            code = "INTERNAL"
            await _abort(context, RequestError(code, "The server failed."))
        finally:
            self.metrics.request("grpc", code, time.perf_counter() - start)

    return answer


class Services(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    """Implements Predict, GetModelMetadata and GetModelStatus, and no other methods."""

    def __init__(self, models, metrics):
        self._models, self.metrics = models, metrics

    @_answered
    async def Predict(self, request):
        """Runs a signature on tensors."""
        version = self._models.get(*_which(request.model_spec))
        signature, name, dtype, _ = version.input(request.model_spec.signature_name)
        if list(request.inputs) != [name]:
            raise invalid(f"inputs must be {[name]}. Received: {list(request.inputs)}.")
        values = _values(name, request.inputs[name], dtype)
        outputs = await version.predict(signature, values)
        response = predict_pb2.PredictResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = version.version
        response.model_spec.signature_name = signature
        for name in list(request.output_filter) or outputs:
            if name not in outputs:
                raise invalid(
                    f"output_filter may contain {sorted(outputs)}. Received: {name!r}."
                )
            response.outputs[name].CopyFrom(tf.make_tensor_proto(outputs[name]))
        return response

    @_answered
    async def GetModelMetadata(self, request):
        """Returns the signatures of a version."""
        if list(request.metadata_field) != ["signature_def"]:
            raise invalid("metadata_field must be ['signature_def'].")
        return rest.metadata(self._models, *_which(request.model_spec))

    @_answered
    async def GetModelStatus(self, request):
        """Returns the states of a model's versions."""
        return rest.status(self._models, *_which(request.model_spec))


def _which(spec):
    if not spec.name:
        raise invalid("model_spec must have a name.")
    version = spec.version.value if spec.HasField("version") else None
    return spec.name, version, spec.version_label or None


def _values(name, proto, dtype):
    received = tf.dtypes.as_dtype(proto.dtype)
    if np.dtype(received.as_numpy_dtype) != dtype:
        raise invalid(
            f"Input {name} must have the dtype {tf.dtypes.as_dtype(dtype).name}. "
            f"Received: {received.name}."
        )
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if dtype.kind == "O":
        if shape != [len(proto.string_val)]:
            raise invalid(
                f"Input {name} must be a list of strings. Received: shape {shape} with "
                f"{len(proto.string_val)} values."
            )
        return list(proto.string_val)
    # The format allows one value to fill a whole tensor. Reject this, because a small
    # request could then allocate any amount of memory.
    if min(shape, default=0) < 0 or math.prod(shape) > proto.ByteSize():
        raise invalid(f"Input {name} has too few values for its shape {shape}.")
    try:
        return np.asarray(tf.make_ndarray(proto))
    except (ValueError, TypeError) as error:
        raise invalid(f"Input {name} is not a tensor: {error}") from None


async def _abort(context, error):
    if error.retry_after is not None:
        context.set_trailing_metadata((("retry-after", str(error.retry_after)),))
    await context.abort(getattr(grpc.StatusCode, error.code), error.message)
