"""The routes of the gallery: enroll, identify, remove, and who is known."""

import asyncio
import concurrent.futures

from aiohttp import web

from plsc_tf.serving.gallery import Gallery
from plsc_tf.serving.server import json_text
from plsc_tf.serving.server.errors import RequestError, invalid
from plsc_tf.serving.server.http_routes import answer, images_of

_MOST_CANDIDATES = 100
_LONGEST_NAME = 256


class GalleryRoutes:
    """Handlers of one gallery, which is opened with the first model's size.

    Args:
        app: the `App`, with its options, service, bodies and metrics.

    Raises:
        ValueError: the gallery is of another model.
        OSError: it cannot be opened.
    """

    def __init__(self, app):
        self._app, self._service = app, app.service
        model = app.service.models.get()
        outputs = model.outputs("serving_default")
        _, shape = outputs.get("embedding") or next(iter(outputs.values()))
        self._fingerprint = model.fingerprint
        self._gallery = Gallery(
            app.options.gallery_dir,
            shape[-1],
            dtype=app.options.gallery_dtype,
            model=model.fingerprint,
        )
        self._count()
        # Searches outside of the event loop; numpy uses the cores by itself.
        self._threads = concurrent.futures.ThreadPoolExecutor(
            2, thread_name_prefix="gallery"
        )

    def close(self) -> None:
        """Finishes running requests and closes the gallery."""
        self._threads.shutdown()
        self._gallery.close()

    def add_to(self, web_app: web.Application) -> None:
        """Adds the routes to an aiohttp application."""
        for handler in (self.enrol, self.identify, self.remove):
            path, expect = f"/gallery/{handler.__name__}", self._app.bodies.expect
            web_app.router.add_post(path, handler, expect_handler=expect)
        web_app.router.add_get("/gallery", self.about)

    async def enrol(self, request: web.Request) -> web.Response:
        """{"name", "base64_string": [...]} -> {"name", "faces"}."""
        body = await self._app.bodies.read_json(request)
        name = _name(body)
        embeddings, _ = await self._embed(body)
        faces = await self._do(self._gallery.enrol, name, embeddings)
        self._count()
        return _json(name=name, faces=faces)

    async def identify(self, request: web.Request) -> web.Response:
        """{"base64_string", "count", "threshold"} -> {"instance": [{"candidates"}]}.

        Without a threshold the model card's counts; with null none does. The answer
        holds the one that counted.
        """
        body = await self._app.bodies.read_json(request)
        count, threshold = body.get("count", 1), body.get("threshold")
        if type(count) is not int or not 1 <= count <= _MOST_CANDIDATES:
            raise invalid(f"count must be a number from 1 to {_MOST_CANDIDATES}.")
        if threshold is not None and type(threshold) not in (int, float):
            raise invalid("threshold must be a number, the smallest cosine.")
        embeddings, calibrated = await self._embed(body)
        if "threshold" not in body and calibrated:
            threshold = calibrated["cosine"]
        people = await self._do(
            lambda: self._gallery.identify(embeddings, count=count, threshold=threshold)
        )
        people = [
            {"candidates": [match._asdict() for match in matches]} for matches in people
        ]
        return _json(instance=people, threshold=threshold)

    async def remove(self, request: web.Request) -> web.Response:
        """{"name"} -> {"name", "faces"}: how many were removed."""
        name = _name(await self._app.bodies.read_json(request))
        faces = await self._do(self._gallery.remove, name)
        if not faces:
            raise RequestError("NOT_FOUND", f"The gallery does not know {name!r}.")
        self._count()
        return _json(name=name, faces=faces)

    async def about(self, request: web.Request) -> web.Response:
        """How many faces and people there are, and who counts as known."""
        model = self._service.models.get()
        return _json(
            faces=len(self._gallery),
            people=self._gallery.num_people,
            embedding_size=self._gallery.dim,
            dtype=self._gallery.dtype,
            usable=model.fingerprint == self._fingerprint,
            threshold=model.threshold,
        )

    async def _embed(self, body):
        images = images_of(body, self._service)
        embeddings, model = await self._service.embed(images)
        if model.fingerprint != self._fingerprint:
            raise RequestError(
                "ABORTED",
                f"The gallery was made with another model than version {model.version};"
                " their embeddings cannot be compared. Start the server with a new "
                "gallery_dir and enrol again.",
            )
        return embeddings, model.threshold

    async def _do(self, function, *arguments):
        loop = asyncio.get_running_loop()
        # What has begun is finished, even if the caller has gone.
        work = loop.run_in_executor(self._threads, function, *arguments)
        try:
            return await asyncio.shield(work)
        except ValueError as error:
            raise invalid(str(error)) from error
        except OSError as error:
            raise RequestError("INTERNAL", f"The gallery failed: {error}") from error

    def _count(self):
        self._app.metrics.gallery.set(len(self._gallery))


def _name(body):
    name = body.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
        raise invalid(f"name must be a text of 1 to {_LONGEST_NAME} characters.")
    return name


def _json(**values):
    return answer(json_text.write(values))
