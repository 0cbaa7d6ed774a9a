"""TF Serving's gRPC services: PredictionService and ModelService."""

import functools
import itertools
import math
import time

import grpc
import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow_serving.apis import model_service_pb2_grpc as models_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc as predict_grpc

from plsc_tf.serving.server import rest
from plsc_tf.serving.server.errors import RequestError, invalid


def make_server(app) -> grpc.aio.Server:
    """Creates a `grpc.aio` server in the running event loop, without a port.

    Args:
        app: the `App`, with its options, models and metrics.
    """
    server = grpc.aio.server(
        interceptors=[_Keys(app)] if app.access.keyed else [],
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
    predict_grpc.add_PredictionServiceServicer_to_server(services, server)
    models_grpc.add_ModelServiceServicer_to_server(services, server)
    return server


def open_port(server: grpc.aio.Server, address: str, options) -> int:
    """Lets a server listen, with TLS if `options` name a certificate; returns its port.

    Raises:
        RuntimeError: the port is in use.
    """
    if not options.tls_certificate:
        return server.add_insecure_port(address)
    with (
        open(options.tls_key, "rb") as key,
        open(options.tls_certificate, "rb") as file,
    ):
        pair = key.read(), file.read()
    return server.add_secure_port(address, grpc.ssl_server_credentials([pair]))


class _Keys(grpc.aio.ServerInterceptor):
    """Refuses calls without a key that may embed."""

    def __init__(self, app):
        self._app = app

    async def intercept_service(self, continuation, details):
        """Lets a call go on, or answers it with the error."""
        credentials = dict(details.invocation_metadata).get("authorization")
        try:
            self._app.access.check_key(credentials, "embed")
            return await continuation(details)
        except RequestError as error:
            self._app.metrics.request("grpc", error.code, 0.0)
            # A method that takes a stream does not wait for the message, so a client
            # without a key cannot fill the memory with messages.
            abort = functools.partial(_abort, error)
            return grpc.stream_unary_rpc_method_handler(abort)


async def _abort(error, _, context):
    if error.retry_after is not None:
        context.set_trailing_metadata((("retry-after", str(error.retry_after)),))
    await context.abort(getattr(grpc.StatusCode, error.code), error.message)


def _answered(method):
    """Wraps a method (self, request) to answer with gRPC errors and count requests."""

    @functools.wraps(method)
    async def answer(self, request, context):
        start, code = time.perf_counter(), "CANCELLED"
        try:
            response = await method(self, request)
            code = "OK"
            return response
        except Exception as error:  # noqa: BLE001 - logged, and answered with INTERNAL
            if not isinstance(error, RequestError):
                logging.exception("%s failed", method.__name__)
                error = RequestError("INTERNAL", "The server failed.")
            code = error.code
            await _abort(error, request, context)
        finally:
            self.metrics.request("grpc", code, time.perf_counter() - start)

    return answer


class Services(
    predict_grpc.PredictionServiceServicer, models_grpc.ModelServiceServicer
):
    """Implements Predict, GetModelMetadata and GetModelStatus, and no other methods."""

    def __init__(self, models, metrics):
        self._models, self.metrics = models, metrics

    @_answered
    async def Predict(self, request):
        """Runs a signature on tensors."""
        version = self._models.get(*_which(request.model_spec))
        signature, name, *kind = version.input(request.model_spec.signature_name)
        if (names := [*itertools.islice(request.inputs, 9)]) != [name]:
            raise invalid(f"inputs must be {[name]}. Received: {names}.")
        values = _values(name, request.inputs[name], *kind)
        outputs = await version.predict(signature, values)
        response = predict_pb2.PredictResponse()
        response.model_spec.name = request.model_spec.name
        response.model_spec.version.value = version.version
        response.model_spec.signature_name = signature
        for name in set(request.output_filter) or outputs:
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


def _values(name, proto, dtype, expected_shape):
    expected = tf.dtypes.as_dtype(dtype)
    if proto.dtype != expected.as_datatype_enum:
        received = str(type(proto)(dtype=proto.dtype)).strip()
        raise invalid(f"Input {name} must be {expected.name}. Received: {received}.")
    # A request may have millions of dimensions or values, so count them first.
    rank, received = len(expected_shape), len(proto.tensor_shape.dim)
    if received != rank:
        raise invalid(f"Input {name} must have rank {rank}. Received: {received}.")
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if dtype.kind == "O":
        if shape != [len(proto.string_val)]:
            raise invalid(
                f"Input {name} must be a list of strings. Received: shape {shape} with "
                f"{len(proto.string_val)} values."
            )
        return proto.string_val
    # The format allows one value to fill a whole tensor. Reject this, because a small
    # request could then allocate any amount of memory.
    if min(shape, default=0) < 0 or math.prod(shape) > proto.ByteSize():
        raise invalid(f"Input {name} has too few values for its shape {shape}.")
    try:
        return np.asarray(tf.make_ndarray(proto))
    except (ValueError, TypeError) as error:
        raise invalid(f"Input {name} is not a tensor: {error}") from None
