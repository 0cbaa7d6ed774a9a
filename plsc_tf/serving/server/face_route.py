"""The HTTP handler that finds and embeds the faces in photographs."""

import dataclasses
import types
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from aiohttp import web

from plsc_tf.data.alignment import cut_faces, stored_size
from plsc_tf.data.detection import find_detector, open_photo
from plsc_tf.data.images import encode
from plsc_tf.serving.server import rest
from plsc_tf.serving.server.batching import Batcher
from plsc_tf.serving.server.http_routes import answer
from plsc_tf.serving.server.limits import check_count

# Photographs of a request, and of all requests that wait.
_MOST, _MOST_WAITING = 16, 64


class FaceRoute:
    """The handler of POST /faces.

    A `Batcher` calls `run` in a thread, for one photograph at a time: it limits the
    queue and the time, and requests take turns.

    Args:
        app: the `App`, with its options, models, bodies and metrics.

    Raises:
        ImportError: the detector does not exist.

    Attributes:
        seconds: {}, see `LoadedModel`.
    """

    def __init__(self, app):
        self._app, self._most = app, app.options.max_request_images
        self._detect, self.seconds = find_detector(app.options.detect), {}
        self._size = None
        one = {"max_batch_images": 1, "parallel_batches": 1}
        options = dataclasses.replace(app.options, **one, queue_images=_MOST_WAITING)
        thread = ThreadPoolExecutor(1, "faces")  # each thread has memory of its own
        # Each forged EXIF tag would write a line to the log, and stay in memory.
        warnings.filterwarnings("ignore", module="PIL")
        self._queue = Batcher(self, "faces", thread, options, app.metrics)

    async def faces(self, request: web.Request) -> web.Response:
        """Finds and embeds faces, the largest of a photograph first.

        The request is {"base64_string": [photographs]}; the answer is {"instance":
        [{"faces": [{"box", "points", "embedding"}]}], "model": its fingerprint}, with
        "quality" in each face if the model knows it.
        """
        photos = (await self._app.read_images(request))["base64_string"]
        check_count(len(photos), _MOST)
        model, found = await self._find(photos)
        faces = [face for photo in found for face in photo.faces]
        cut = [face.pop("pixels") for face in faces]
        rows = await model.embed(cut) if cut else ()
        for face, row in zip(faces, rows, strict=True):
            face |= row
        photos = [{"faces": photo.faces} for photo in found]
        return answer(rest.write_json({"instance": photos, "model": model.fingerprint}))

    async def _find(self, photos):
        """Returns (model, the photographs' faces, cut out at the size for it)."""
        while True:
            model = self._app.models.get()
            *_, shape = model.input("images")
            size = self._size = stored_size(shape[1:3])
            found = (await self._queue.run(photos, map(len, photos)))["found"]
            # Otherwise, a new version with another size came meanwhile.
            if all(photo.size == size for photo in found):
                return model, found

    def run(self, _, photos: list[bytes]) -> dict[str, np.ndarray]:
        """Finds the faces in a photograph, and cuts them out as PNGs.

        Raises:
            ValueError: it cannot be decoded.
        """
        pixels = open_photo(photos[0], self._app.options.max_megapixels)
        (points,), size = self._detect([pixels]), self._size
        faces = cut_faces(pixels, points, size, most=self._most)
        faces = [one._replace(pixels=encode(one.pixels))._asdict() for one in faces]
        # As a list, it would become an array.
        return {"found": np.array([types.SimpleNamespace(faces=faces, size=size)])}
