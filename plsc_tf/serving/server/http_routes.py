"""HTTP handlers: PLSC's service, TF Serving's REST, health, metrics and gallery."""

import asyncio
import collections
import concurrent.futures
import errno
import re
import time
import urllib.parse

import numpy as np
from absl import logging
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from plsc_tf.serving.gallery import LONGEST_NAME, Gallery
from plsc_tf.serving.server import audit, rest
from plsc_tf.serving.server.access import handler_facts
from plsc_tf.serving.server.errors import RequestError, invalid
from plsc_tf.serving.server.turns import Turns

PLSC_PATH = "/FaceClassifyService/inference"
# At most 18 digits, because versions are 64-bit integers.
_MODEL = r"/v1/models/(?P<name>[^/:]+)(?:/versions/(?P<version>\d{1,18}))?"
_PREDICT = re.compile(_MODEL + ":predict", re.IGNORECASE)
_STATUS = re.compile(_MODEL + r"(?P<metadata>/metadata)?", re.IGNORECASE)
# Images of a request that are searched at once; then other keys have their turn.
_QUERIES = 32
# Limits for gallery requests: candidates of an image, and of all images, which may have
# a KB each in the answer.
_MOST_CANDIDATES, _MOST_TOGETHER = 100, 5000


class Routes:
    """A server's handlers, except those for the gallery, and what all have in common.

    Args:
        app: the `App`, with its options, models, bodies and metrics.
    """

    def __init__(self, app):
        self._app, self._models, self._turns = app, app.models, Turns()

    def add_to(self, web_app: web.Application) -> None:
        """Adds the routes to an aiohttp application."""
        router = web_app.router
        router.add_post(PLSC_PATH, self.plsc)
        router.add_get("/healthz", self.health)
        router.add_get("/metrics", self.metrics)
        router.add_route("*", "/v1/{rest:.*}", self.tensorflow)

    @web.middleware
    async def middleware(self, request, handler) -> web.StreamResponse:
        """Turns errors of all handlers into JSON and counts requests.

        It informs the connection's protocol.
        """
        start = time.perf_counter()
        request.protocol.head_received(request)
        try:
            # From Python 3.12 on, aiohttp runs all requests that a client has sent in
            # one step of the event loop, if none has to wait.
            await asyncio.sleep(0)
            response = self._close(request, await self._handle(request, handler))
        finally:
            request.protocol.answered(request.content.is_eof())
        seconds = time.perf_counter() - start
        interface, _ = handler_facts(request)
        self._app.metrics.request(interface, response.status, seconds)
        return response

    def _close(self, request, response):
        """Returns the response, after which the connection may have to be closed."""
        # What follows the chunks of a body stays in memory until the next request.
        chunked = "Transfer-Encoding" in request.headers
        if self._app.draining or chunked or not request.content.is_eof():
            response.force_close()
        return response

    async def _handle(self, request, handler):
        try:
            key = request.match_info["key"] = self._app.access.admit(request)
            with self._app.bodies.counting(key):
                response = self._close(request, await handler(request))
                await self._app.bodies.send(request, response)
                return response
        except RequestError as error:
            if error.code == "INTERNAL":
                logging.error("%s: %s", request.path, error, exc_info=error)
            response = _json(error.status, error=error.message)
            if error.retry_after is not None:
                response.headers["Retry-After"] = str(error.retry_after)
            if error.status == 401:
                response.headers["WWW-Authenticate"] = "Bearer"
            return response
        except web.HTTPException as error:
            response = _json(error.status, error=error.reason)
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
            return response
        except (web.RequestPayloadError, ConnectionError):
            return _json(400, error="The body could not be read.")
        except Exception:  # noqa: BLE001 - logged, and answered with 500
            logging.exception("%s failed", request.path)
            return _json(500, error="The server failed.")

    async def plsc(self, request: web.Request) -> web.Response:
        """Handles PLSC's `FaceClassifyService`: base64 images to embeddings."""
        body, model = await self._app.read_images(request), self._models.get()
        rows = await model.embed(body["base64_string"])
        return _json(instance=rows, model=model.fingerprint)

    async def tensorflow(self, request: web.Request) -> web.Response:
        """Handles TF Serving's REST interface."""
        if request.method == "POST" and (match := _PREDICT.fullmatch(request.path)):
            return await self._predict(request, match)
        if request.method == "GET" and (match := _STATUS.fullmatch(request.path)):
            write = rest.metadata_json if match["metadata"] else rest.status_json
            return answer(write(self._models, *_which(match)))
        raise invalid(f"Malformed request: {request.method} {request.path}"[:200])

    async def _predict(self, request, match):
        which, most = _which(match), self._app.options.max_request_images
        parse = rest.read_inputs, self._models.get(*which).input, most
        signature, form, values = await self._app.bodies.read(request, *parse)
        # Look the version up again: it may have been unloaded while the body arrived.
        outputs = await self._models.get(*which).predict(signature, values)
        return answer(rest.outputs_to_json(form, outputs))

    async def health(self, request: web.Request) -> web.Response:
        """Answers 200 if the server accepts requests, else 503."""
        if self._app.draining:
            return _json(503, status="not serving")
        # Everyone may ask this, and an error may name folders.
        access = self._app.access
        told = not access.keyed and access.is_ours(request.headers)
        return _json(status="serving", **(self._models.failed if told else {}))

    async def metrics(self, request: web.Request) -> web.Response:
        """Answers with the metrics in Prometheus's text format."""
        # It takes a millisecond; a key may send hundreds of requests at once.
        text = await self._turns.call(self._app.metrics.text)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


def answer(body: bytes, status: int = 200) -> web.Response:
    """Returns a response whose body is JSON."""
    return web.Response(body=body, status=status, content_type="application/json")


def _json(status=200, /, **values):
    return answer(rest.write_json(values), status)


def _which(match):
    """Returns (name, version or None) from a path's match."""
    version = match["version"]
    return urllib.parse.unquote(match["name"]), version and int(version)


class GalleryRoutes:
    """The gallery's handlers; opens the gallery for the newest model version.

    Args:
        app: the `App`, with its options, models, bodies and metrics.

    Raises:
        ValueError: the gallery was made with another model.
        OSError: the gallery cannot be opened.
    """

    def __init__(self, app):
        self._app = app
        model, folder = app.models.get(), app.options.gallery_dir
        self._fingerprint = model.fingerprint
        self._gallery = Gallery(folder, model.embedding_size, model=model.fingerprint)
        audit.open_log(folder).close()
        app.metrics.gallery.set_function(self._gallery.__len__)
        # Searches run outside the event loop. Two threads are enough, because numpy
        # uses all cores for each search.
        self._threads = concurrent.futures.ThreadPoolExecutor(2, "gallery")
        # Searches must not wait for the disk, nor a key for all requests of another.
        self._writer = concurrent.futures.ThreadPoolExecutor(1, "change")
        self._turns = collections.defaultdict(asyncio.Lock)
        self._searches = collections.defaultdict(lambda: asyncio.Semaphore(2))

    def close(self) -> None:
        """Finishes the requests in progress and closes the gallery."""
        for threads in (self._threads, self._writer):
            threads.shutdown()
        self._gallery.close()

    def add_to(self, web_app: web.Application) -> None:
        """Adds the routes to an aiohttp application."""
        for handler in (self.enrol, self.identify, self.remove):
            web_app.router.add_post(f"/gallery/{handler.__name__}", handler)
        web_app.router.add_get("/gallery", self.about)

    async def enrol(self, request: web.Request) -> web.Response:
        """Enrolls faces: {"name", "base64_string": [...]} -> {"name", "faces"}."""
        body = await self._app.read_images(request, "name")
        name = _name(body)
        embeddings, _ = await self._embed(self._app.models.get(), body)
        faces = await self._change(request, self._gallery.enrol, name, embeddings)
        return _json(name=name, faces=faces)

    async def identify(self, request: web.Request) -> web.Response:
        """Identifies images among the enrolled people.

        The request is {"base64_string", "count", "threshold"}; the answer is
        {"instance": [{"candidates", "quality"}], "threshold"}, with the threshold that
        was used, and the images' qualities if the model knows them.
        If the request has no threshold, the model card's threshold is used; a null
        threshold returns candidates with any cosine.
        """
        body = await self._app.read_images(request, "count", "threshold")
        count, threshold = body.get("count", 1), body.get("threshold")
        images = len(body["base64_string"])
        most = min(_MOST_CANDIDATES, max(1, _MOST_TOGETHER // images))
        if type(count) is not int or not 1 <= count <= most:
            raise invalid(f"count must be an integer, 1 to {most} for {images} images.")
        if threshold is not None and type(threshold) not in (int, float):
            raise invalid("threshold must be a number (the smallest cosine) or null.")
        model = self._app.models.get()
        embeddings, instances = await self._embed(model, body)
        if "threshold" not in body and model.threshold:
            threshold = model.threshold["cosine"]
        found, limits = [], {"count": count, "threshold": threshold}
        # Those of a key that waited between their parts would keep what they found.
        async with self._searches[request.match_info["key"]]:
            for start in range(0, len(embeddings), _QUERIES):
                part = embeddings[start : start + _QUERIES]
                found += await self._do(self._gallery.identify, part, **limits)
            for instance, row in zip(instances, found, strict=True):
                instance["candidates"] = [one._asdict() for one in row]
            return _json(instance=instances, threshold=threshold)

    async def remove(self, request: web.Request) -> web.Response:
        """Removes a person: {"name"} -> {"name", "faces": number of removed faces}."""
        name = _name(await self._app.bodies.read(request, rest.read_json))
        if not (faces := await self._change(request, self._gallery.remove, name)):
            raise RequestError("NOT_FOUND", f"The gallery does not contain {name!r}.")
        return _json(name=name, faces=faces)

    async def about(self, request: web.Request) -> web.Response:
        """Answers with the gallery's size, and the model's threshold."""
        model, gallery = self._app.models.get(), self._gallery
        # In a thread, because counting takes long, and waits for changes.
        async with self._searches[request.match_info["key"]]:
            counts = await self._do(lambda: (len(gallery), gallery.num_people))
        return _json(
            faces=counts[0],
            people=counts[1],
            usable=model.fingerprint == self._fingerprint,
            threshold=model.threshold,
        )

    async def _embed(self, model, body):
        """Returns (embeddings `[N, size]`, [{"quality"} or {} of each image])."""
        rows = await model.embed(body.pop("base64_string"))
        if model.fingerprint != self._fingerprint:
            raise RequestError(
                "ABORTED",
                f"Version {model.version} is not the model that the gallery was made "
                "with. Start the server with a new gallery_dir and enroll again.",
            )
        return np.stack([row.pop("embedding") for row in rows]), rows

    async def _change(self, request, change, *arguments):
        key, folder = request.match_info["key"], self._app.options.gallery_dir
        who = {"key": key, "address": request.remote}
        # Until its turn, it ends with its client: those of clients that are gone would
        # pile up.
        await self._turns[key].acquire()
        try:
            if request.protocol.is_gone:
                raise ConnectionError
            # Now it is finished and recorded even if the client disconnects, and must
            # not be answered with 503. Its images are no longer in memory.
            self._app.bodies.hold(0)
            work = self._writer.submit(audit.record, folder, change, who, *arguments)
        except BaseException:
            self._turns[key].release()
            raise
        record = asyncio.ensure_future(self._result(work))
        record.add_done_callback(lambda _: self._turns[key].release())
        return await asyncio.shield(record)

    async def _do(self, function, *arguments, **more):
        return await self._result(self._threads.submit(function, *arguments, **more))

    async def _result(self, work):
        try:
            return await asyncio.wrap_future(work)
        except ValueError as error:
            raise invalid(str(error)) from error
        except OSError as error:
            # 507: Insufficient Storage.
            status = 507 if error.errno == errno.ENOSPC else None
            message = f"The gallery failed: {error}"
            # Where it is, is not the client's business.
            message = message.replace(self._app.options.gallery_dir, "gallery_dir")
            raise RequestError("INTERNAL", message, status=status) from error


def _name(body):
    name = body.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise invalid(f"name must be a string of 1 to {LONGEST_NAME} characters.")
    return name
