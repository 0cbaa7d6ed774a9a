"""TF Serving's gRPC services: PredictionService and ModelService."""

import asyncio
import contextlib
import functools
import itertools
import logging as python_logging
import math
import time

import grpc
import tensorflow as tf
from absl import logging
from google.protobuf.message import DecodeError
from grpc._cython import cygrpc
from grpc.aio import _server
from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusRequest
from tensorflow_serving.apis.predict_pb2 import PredictRequest, PredictResponse

from plsc_tf.data.protobuf import has_few_fields
from plsc_tf.serving.server import rest
from plsc_tf.serving.server.bodies import FEW
from plsc_tf.serving.server.errors import RequestError, invalid
from plsc_tf.storage import files

_REQUESTS = {
    "PredictionService/Predict": PredictRequest,
    "PredictionService/GetModelMetadata": GetModelMetadataRequest,
    "ModelService/GetModelStatus": GetModelStatusRequest,
}
# Fields of a message, besides one for each image.
_MOST_FIELDS = 10_000


def make_server(app) -> grpc.aio.Server:
    """Creates a `grpc.aio` server in the running event loop, without a port.

    Args:
        app: the `App`, with its options, models and metrics.
    """
    python_logging.getLogger("grpc._cython.cygrpc").addFilter(_shows_a_defect)
    seconds = math.ceil(app.options.receive_timeout)
    longest = 2 * seconds + app.options.answer_timeout
    options = [
        ("grpc.max_receive_message_length", int(app.options.max_body_mb * 1e6)),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
        # Pings detect connections whose client has disappeared.
        ("grpc.keepalive_time_ms", 60_000),
        # A client may never read its answers; others connect again unnoticed.
        ("grpc.max_connection_age_ms", int(10_000 * app.options.receive_timeout)),
        ("grpc.max_connection_age_grace_ms", int(1000 * longest)),
        ("grpc.max_concurrent_streams", 64),
        # Others would take all files that the process may open.
        ("grpc.max_allowed_incoming_connections", app.options.max_connections),
        ("grpc.server_handshake_timeout_ms", seconds * 1000),
        # Otherwise, fast connections may send more than a message ahead.
        ("grpc.http2.bdp_probe", 0),
    ]
    return _Server(Services(app), options)


def open_port(server: grpc.aio.Server, address: str, options) -> int:
    """Lets a server listen, with TLS if `options` name a certificate; returns its port.

    Raises:
        RuntimeError: the port is in use.
    """
    if not options.tls_certificate:
        return server.add_insecure_port(address)
    pair = files.read(options.tls_key), files.read(options.tls_certificate)
    return server.add_secure_port(address, grpc.ssl_server_credentials([pair]))


class _Server(_server.Server):
    """grpc's server, with the methods of `Services` only.

    It does not limit the number of calls: those whose client never reads the answer
    would keep others out.
    """

    def __init__(self, services, options):
        self._loop = asyncio.get_running_loop()
        self._server = _Core(self._loop, None, (), (), options, None)
        self._server.refuse = services.refuse
        self._server.add_registered_method_handlers(services.handlers)


class _Core(cygrpc.AioServer):
    async def _request_call(self):
        """Refuses the calls of unknown methods, and never returns one.

        The caller would decode the method, and end if it is not UTF-8.
        """
        loop, refusals = asyncio.get_running_loop(), set()
        while True:
            call = await super()._request_call()
            context = cygrpc._ServicerContext(call, None, None, loop)
            refusal = asyncio.gather(self.refuse(context), return_exceptions=True)
            refusals.add(refusal)
            refusal.add_done_callback(refusals.discard)


def _shows_a_defect(record):
    """Returns False for logs of headers that are not UTF-8, or of calls that ended."""
    return not record.getMessage().startswith(("Invalid encoding", "ExecuteBatchError"))


class Services:
    """Implements Predict, GetModelMetadata and GetModelStatus.

    Args:
        app: the `App`, with its options, models, access, bodies and metrics.

    Attributes:
        handlers: {method: its handler}.
    """

    def __init__(self, app):
        self._app, self._models, self._bodies = app, app.models, app.bodies
        self._most_fields = _MOST_FIELDS + app.options.max_request_images
        # A method that takes a stream asks for the message itself; others are called
        # when it has arrived, so messages that never end would fill the memory.
        # Without a deserializer, it receives bytes and can judge them.
        self.handlers = {
            f"/tensorflow.serving.{name}": grpc.stream_unary_rpc_method_handler(
                functools.partial(self._call, name.partition("/")[2], kind)
            )
            for name, kind in _REQUESTS.items()
        }

    async def refuse(self, context: grpc.aio.ServicerContext) -> None:
        """Answers a call of another method with an error."""
        try:
            await self._call("", None, None, context)
        except grpc.aio.AbortError as error:
            # The call keeps the error, whose frames would keep the call, and with it
            # one of its connection's streams.
            error.with_traceback(None)

    async def _call(self, name, kind, _, context):
        """Calls a method, answers with errors and counts.

        Args:
            name: the method, which takes the message and its size in bytes.
            kind: class of the message.
            context: grpc's, with the message.
        """
        start, code = time.perf_counter(), "CANCELLED"
        try:
            found = await self._answer(name, kind, context)
            if isinstance(found, RequestError):
                code = found.code
                await context.abort(getattr(grpc.StatusCode, code), found.message)
            code = "OK"
            return found
        finally:
            self._app.metrics.request("grpc", code, time.perf_counter() - start)

    async def _answer(self, name, kind, context):
        """Returns the answer's bytes or the error."""
        try:
            credentials = dict(context.invocation_metadata()).get("authorization")
            key = self._app.access.check_key(credentials, "embed")
            if not kind:
                raise RequestError("UNIMPLEMENTED", "Method not found!")
            # Its memory does not count while the client reads the answer, which may
            # take as long as the connection.
            with self._bodies.counting(key):
                data = await self._bodies.receive(context.read())
                if data is grpc.aio.EOF:
                    raise invalid("The request has no message.")
                self._bodies.hold(len(data))
                count = 0 if _has_few(data, kind) else self._most_fields
                parse = self._parse, name, kind, data
                found = await self._bodies.parse(len(data), count, *parse)
                return (await found() if callable(found) else found).SerializeToString()
        except RequestError as error:
            return error.with_traceback(None)
        except Exception:  # noqa: BLE001 - logged, and answered with INTERNAL
            logging.exception("%s failed", name)
            return RequestError("INTERNAL", "The server failed.")

    def _parse(self, name, kind, data):
        """Calls a method with a message, which is not kept.

        Only its bytes are counted; parsed, it may need sixteen times as many.
        """
        return getattr(self, name)(_read(data, kind, self._most_fields), len(data))

    def Predict(self, request, size):
        """Returns a function that runs a signature on the request's tensors."""
        spec = request.model_spec
        version = self._models.get(*_which(spec))
        signature, name, *kind = version.input(spec.signature_name)
        names = [one[: len(name) + 1] for one in itertools.islice(request.inputs, 9)]
        if names != [name]:
            raise invalid(f"inputs must be {[name]}. Received: {names}.")
        values = _values(name, request.inputs[name], *kind, size)
        response = PredictResponse()
        response.model_spec.name = spec.name
        response.model_spec.version.value = version.version
        response.model_spec.signature_name = signature
        wanted = set(request.output_filter)
        return functools.partial(_predict, version, signature, values, wanted, response)

    def GetModelMetadata(self, request, size):
        """Returns the signatures of a version."""
        if list(request.metadata_field) != ["signature_def"]:
            raise invalid("metadata_field must be ['signature_def'].")
        return rest.metadata(self._models, *_which(request.model_spec))

    def GetModelStatus(self, request, size):
        """Returns the states of a model's versions."""
        return rest.status(self._models, *_which(request.model_spec))


def _read(data, kind, most):
    """Parses a message; raises RequestError if it has more than `most` fields."""
    with contextlib.suppress(DecodeError, IndexError):
        if has_few_fields(data, kind.DESCRIPTOR, most):
            return kind.FromString(data)
        raise invalid(f"A request may have at most {most} fields.")
    raise invalid(f"The request is not a {kind.DESCRIPTOR.name}.")


async def _predict(version, signature, values, wanted, response):
    """Adds the wanted outputs, or all if it is empty, to a response; returns it."""
    outputs = await version.predict(signature, values)
    for name in wanted or outputs:
        if name not in outputs:
            rule = f"output_filter may contain {sorted(outputs)}"
            raise invalid(f"{rule}. Received: {name[:100]!r}.")
        response.outputs[name].CopyFrom(tf.make_tensor_proto(outputs[name]))
    return response


def _has_few(data, kind):
    with contextlib.suppress(DecodeError, IndexError):
        return has_few_fields(data, kind.DESCRIPTOR, FEW)
    return False


def _which(spec):
    if not spec.name:
        raise invalid("model_spec must have a name.")
    if spec.version_label:
        raise invalid(f"Unrecognized servable version label: {spec.version_label}")
    return spec.name, spec.version.value if spec.HasField("version") else None


def _values(name, proto, dtype, expected, size):
    kind = tf.dtypes.as_dtype(dtype)
    if proto.dtype != kind.as_datatype_enum:
        received = str(type(proto)(dtype=proto.dtype)).strip()
        raise invalid(f"Input {name} must be {kind.name}. Received: {received}.")
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if len(shape) != len(expected) or min(shape, default=0) < 0:
        raise invalid(f"Input {name} must have shape {expected}. Received: {shape}.")
    # The format allows one value to fill a whole tensor. Reject this, because a small
    # request could then allocate any amount of memory.
    if math.prod(shape) > (len(proto.string_val) if dtype.kind == "O" else size):
        raise invalid(f"Input {name} has too few values for its shape {shape}.")
    try:
        # Unlike tf.make_ndarray, it does not hold Python's lock.
        return tf.io.parse_tensor(proto.SerializeToString(), kind).numpy()
    except tf.errors.InvalidArgumentError as error:
        raise invalid(f"Input {name} is not a tensor: {error.message}") from None
