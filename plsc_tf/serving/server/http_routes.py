"""The routes of HTTP: PLSC's, TF Serving's REST, health and metrics."""

import re
import time
import urllib.parse

from absl import logging
from aiohttp import web

from plsc_tf.serving.server import base64_text, json_text, model_messages, tensors
from plsc_tf.serving.server.errors import RequestError, invalid
from plsc_tf.serving.server.guard import guard_of

PLSC_PATH = "/FaceClassifyService/inference"
_MODEL = (
    r"/v1/models/(?P<name>[^/:]+)"
    r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
)
_PREDICT = re.compile(_MODEL + r":(?P<method>classify|regress|predict)", re.IGNORECASE)
_STATUS = re.compile(_MODEL + r"(?P<metadata>/metadata)?", re.IGNORECASE)
# Versions are 64-bit integers.
_MOST_DIGITS = 18


class Routes:
    """Handlers of one server."""

    def __init__(self, service, bodies, metrics, state):
        """Answers by `service`.

        Args:
            service: the `Service`.
            bodies: the `Bodies`.
            metrics: the `Metrics`.
            state: has `draining`: whether the server is about to end.
        """
        self._service, self._bodies = service, bodies
        self._metrics, self._state = metrics, state

    def add_to(self, app):
        """Adds the routes to an aiohttp application."""
        expect = {"expect_handler": self._bodies.expect}
        app.router.add_post(PLSC_PATH, self.plsc, **expect)
        app.router.add_get("/healthz", self.health)
        app.router.add_get("/metrics", self.show_metrics)
        app.router.add_route("*", "/v1/{rest:.*}", self.tensorflow, **expect)

    async def plsc(self, request):
        """PLSC's `FaceClassifyService`: base64 pictures to embeddings."""
        body = await self._bodies.read_json(request)
        pictures = pictures_of(body, self._service.limits)
        embeddings, _ = await self._service.embed(pictures)
        instances = [{"embedding": json_text.plain(row)} for row in embeddings]
        return answer(json_text.write_any({"instance": instances}, [embeddings]))

    async def tensorflow(self, request):
        """TF Serving's REST interface."""
        path = request.path
        found = _PREDICT.fullmatch(path)
        if request.method == "POST" and found:
            return await self._predict(request, found)
        found = _STATUS.fullmatch(path)
        if request.method == "GET" and found:
            return self._status(found)
        raise invalid(f"Malformed request: {request.method} {path}")

    async def _predict(self, request, found):
        name, version, label = _which(found)
        method = found["method"].lower()
        if method != "predict":
            raise invalid(
                f"Expected {method} signature method_name to be tensorflow/serving/"
                f"{method}. Was: tensorflow/serving/predict"
            )
        models = self._service.models
        models.get(name, version, label)
        body = await self._bodies.read_json(request)
        # Only now: what was the newest version may have gone meanwhile.
        servable = models.get(name, version, label)
        signature = body.get("signature_name", "")
        if not isinstance(signature, str):
            raise invalid("'signature_name' key must be a string value.")
        signature = servable.check_signature(signature)
        form, inputs = tensors.inputs_from_json(body, servable.model.inputs(signature))
        outputs = await self._service.predict(servable, signature, inputs)
        return answer(tensors.outputs_to_json(form, outputs))

    def _status(self, found):
        name, version, label = _which(found)
        models = self._service.models
        if found["metadata"]:
            message = model_messages.metadata_json(models, name, version, label)
        else:
            message = model_messages.status_json(models, name, version, label)
        return answer(message)

    async def health(self, request):
        """Whether requests should be sent here: 200 or 503."""
        if self._state.draining or not self._service.models.ready:
            return answer(b'{"status": "not serving"}', 503)
        return answer(b'{"status": "serving"}')

    async def show_metrics(self, request):
        """Prometheus's text."""
        return web.Response(
            body=self._metrics.text(),
            headers={"Content-Type": self._metrics.content_type},
        )


def pictures_of(body, limits):
    """The pictures in PLSC's `base64_string`.

    Raises:
        RequestError: there are none, or they are no base64.
    """
    texts = body.get("base64_string")
    if not isinstance(texts, list):
        raise invalid('Expecting {"base64_string": [texts in base64]}.')
    limits.check_count(len(texts))
    pictures = [base64_text.decode(text) for text in texts]
    if None in pictures:
        raise invalid(f"Item {pictures.index(None)} of base64_string is not base64.")
    return pictures


def answer(body, status=200):
    """A response with JSON in its body."""
    return web.Response(body=body, status=status, content_type="application/json")


def answer_error(error):
    """A response that says what was wrong, as TF Serving does."""
    response = answer(json_text.write({"error": error.message}), error.status)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def make_middleware(metrics, state):
    """Around every handler: the guard, errors as JSON, counting."""

    @web.middleware
    async def middleware(request, handler):
        start = time.perf_counter()
        guard = guard_of(request)
        if guard is not None:
            guard.head_received()
        try:
            response = await _handle(request, handler)
        finally:
            if guard is not None:
                guard.answered()
        if state.draining or response.status in (408, 413):
            response.force_close()
        metrics.request(
            _interface(request.path), response.status, time.perf_counter() - start
        )
        return response

    return middleware


async def _handle(request, handler):
    try:
        return await handler(request)
    except RequestError as error:
        if error.code == "INTERNAL":
            logging.error("%s: %s", request.path, error, exc_info=error)
        return answer_error(error)
    except web.HTTPException as error:
        response = answer(json_text.write({"error": error.reason}), error.status)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except (web.RequestPayloadError, ConnectionError):
        return answer_error(invalid("The body could not be read."))
    except Exception:  # noqa: BLE001 - logged, and told as INTERNAL
        logging.exception("%s failed", request.path)
        return answer_error(RequestError("INTERNAL", "The server failed."))


def _interface(path):
    """A label of few values: what callers write in URLs must not fill the memory."""
    for beginning, label in (
        (PLSC_PATH, "plsc"),
        ("/v1/", "rest"),
        ("/gallery", "gallery"),
    ):
        if path.startswith(beginning):
            return label
    return path if path in ("/healthz", "/metrics") else "other"


def _which(found):
    version = found["version"]
    if version is not None and len(version) > _MOST_DIGITS:
        raise invalid(f"Failed to convert version: {version} to numeric.")
    label = found["label"]
    return (
        urllib.parse.unquote(found["name"]),
        None if version is None else int(version),
        None if label is None else urllib.parse.unquote(label),
    )
