"""The routes of HTTP: PLSC's, TF Serving's REST, health and metrics."""

import re
import time
import urllib.parse

from absl import logging
from aiohttp import web

from plsc_tf.serving.server import json_text, model_messages, tensors
from plsc_tf.serving.server.errors import RequestError, invalid
from plsc_tf.serving.server.guard import guard_of
from plsc_tf.serving.server.service import Service

PLSC_PATH = "/FaceClassifyService/inference"
_MODEL = (
    r"/v1/models/(?P<name>[^/:]+)"
    r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
)
_PREDICT = re.compile(_MODEL + r":(?P<method>classify|regress|predict)", re.IGNORECASE)
_STATUS = re.compile(_MODEL + r"(?P<metadata>/metadata)?", re.IGNORECASE)
# Versions are 64-bit integers.
_MOST_DIGITS = 18
# Labels of metrics by the beginning of the path.
_INTERFACES = {PLSC_PATH: "plsc", "/v1/": "rest", "/gallery": "gallery"}


class Routes:
    """Handlers of one server.

    Args:
        app: the `App`, with its service, bodies and metrics.
    """

    def __init__(self, app):
        self._app, self._service = app, app.service

    def add_to(self, web_app: web.Application) -> None:
        """Adds the routes to an aiohttp application."""
        expect, router = self._app.bodies.expect, web_app.router
        router.add_post(PLSC_PATH, self.plsc, expect_handler=expect)
        router.add_get("/healthz", self.health)
        router.add_get("/metrics", self.metrics)
        router.add_route("*", "/v1/{rest:.*}", self.tensorflow, expect_handler=expect)

    async def plsc(self, request: web.Request) -> web.Response:
        """PLSC's `FaceClassifyService`: base64 images to embeddings."""
        body = await self._app.bodies.read_json(request)
        embeddings, _ = await self._service.embed(images_of(body, self._service))
        instances = [{"embedding": row} for row in embeddings]
        return answer(json_text.write({"instance": instances}, [embeddings]))

    async def tensorflow(self, request: web.Request) -> web.Response:
        """TF Serving's REST interface."""
        match = _PREDICT.fullmatch(request.path)
        if request.method == "POST" and match:
            return await self._predict(request, match)
        match = _STATUS.fullmatch(request.path)
        if request.method == "GET" and match:
            kind = "metadata" if match["metadata"] else "status"
            write = getattr(model_messages, f"{kind}_json")
            return answer(write(self._service.models, *_which(match)))
        raise invalid(f"Malformed request: {request.method} {request.path}")

    async def _predict(self, request, match):
        which, method = _which(match), match["method"].lower()
        if method != "predict":
            raise invalid(
                f"Expected {method} signature method_name to be tensorflow/serving/"
                f"{method}. Was: tensorflow/serving/predict"
            )
        models = self._service.models
        models.get(*which)
        body = await self._app.bodies.read_json(request)
        # Only now: the version that was the newest may have gone meanwhile.
        version = models.get(*which)
        signature = body.get("signature_name", "")
        if not isinstance(signature, str):
            raise invalid("'signature_name' key must be a string value.")
        signature = version.check_signature(signature)
        form, inputs = tensors.inputs_from_json(body, version.inputs(signature))
        outputs = await self._service.predict(version, signature, inputs)
        return answer(tensors.outputs_to_json(form, outputs))

    async def health(self, request: web.Request) -> web.Response:
        """Whether requests should be sent here: 200 or 503."""
        if self._app.draining or not self._service.models.ready:
            return answer(b'{"status": "not serving"}', 503)
        return answer(b'{"status": "serving"}')

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus's text."""
        metrics = self._app.metrics
        headers = {"Content-Type": metrics.content_type}
        return web.Response(body=metrics.text(), headers=headers)


def images_of(body: dict, service: Service) -> list[bytes]:
    """The images in PLSC's `base64_string`.

    Raises:
        RequestError: there are none, or they are not base64.
    """
    texts = body.get("base64_string")
    if not isinstance(texts, list):
        raise invalid('Expecting {"base64_string": [texts in base64]}.')
    service.check_count(len(texts))
    images = [json_text.decode_base64(text) for text in texts]
    if None in images:
        raise invalid(f"Item {images.index(None)} of base64_string is not base64.")
    return images


def answer(body: bytes, status: int = 200) -> web.Response:
    """A response with JSON in its body."""
    return web.Response(body=body, status=status, content_type="application/json")


def _refusal(message, status):
    return answer(json_text.write({"error": message}), status)


def make_middleware(app):
    """The code around every handler of an `App`: guard, errors as JSON, counting."""

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
        if app.draining or response.status in (408, 413):
            response.force_close()
        label = _interface(request.path)
        app.metrics.request(label, response.status, time.perf_counter() - start)
        return response

    return middleware


def _interface(path):
    """A label of few values: the paths that callers invent must not fill the memory."""
    for beginning, label in _INTERFACES.items():
        if path.startswith(beginning):
            return label
    return path if path in ("/healthz", "/metrics") else "other"


async def _handle(request, handler):
    try:
        return await handler(request)
    except RequestError as error:
        if error.code == "INTERNAL":
            logging.error("%s: %s", request.path, error, exc_info=error)
        response = _refusal(error.message, error.status)
        if error.retry_after is not None:
            response.headers["Retry-After"] = str(error.retry_after)
        return response
    except web.HTTPException as error:
        response = _refusal(error.reason, error.status)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response
    except (web.RequestPayloadError, ConnectionError):
        return _refusal("The body could not be read.", 400)
    except Exception:  # noqa: BLE001 - logged, and answered with 500
        logging.exception("%s failed", request.path)
        return _refusal("The server failed.", 500)


def _which(match):
    """(name, version or None, label or None) of a path."""
    version, label = match["version"], match["label"]
    if version is not None and len(version) > _MOST_DIGITS:
        raise invalid(f"Failed to convert version: {version} to numeric.")
    return (
        urllib.parse.unquote(match["name"]),
        version and int(version),
        label and urllib.parse.unquote(label),
    )
