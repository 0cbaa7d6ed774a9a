"""Clients that send images to one or more servers and receive embeddings.

    service = FaceService()
    service.connect("127.0.0.1:8010")
    embeddings = service.encode([open("photo.jpg", "rb").read()])

The module needs only numpy, not TensorFlow.
"""

import base64
import collections
import contextlib
import functools
import http.client
import itertools
import json
import os
import re
import ssl
import time
from collections.abc import Iterable

import numpy as np

from plsc_tf.requirements import require
from plsc_tf.serving.limited_response import Connection, TLSConnection, parsed, receive

_PLSC_PATH, _FACES_PATH = "/FaceClassifyService/inference", "/faces"
# Seconds for which a failed server is avoided, unless it sends Retry-After; the most.
_AVOID_SECONDS, _LONGEST_AVOIDED = 5.0, 3600.0
# Another server, or the same server later, may not answer with these statuses.
_BUSY_STATUSES = (429, *range(500, 600))
# Socket errors are OSErrors; malformed answers raise HTTPException, or ValueError if a
# length is negative.
_FAILURES = (OSError, http.client.HTTPException, ValueError)
# The results of a comparison.
_VERIFIED = {"score": float, "llr": float, "probability": float, "decision": bool}


class ServiceError(RuntimeError):
    """No server answered; the message lists each server's failure."""


class Client(contextlib.AbstractContextManager):
    """Requests embeddings from several servers in turn; thread-safe.

    Example: `Client("10.0.0.1:8010", "10.0.0.2:8010").encode(images)`.

    If a server fails, is busy or is too slow, the client sends the request to the next
    server and avoids the failed one for a while; an embedding can therefore be computed
    twice. An invalid request raises ValueError and is not sent to another server.
    """

    def __init__(
        self,
        *servers: str,
        model: str = "face",
        timeout: float = 10.0,
        batch_images: int = 64,
        api_key: str | None = None,
        tls: bool | str = False,
    ):
        """Creates a client, which connects when it sends its first request.

        Args:
            *servers: addresses, host:port.
            model: the model's name, for servers that only have TensorFlow Serving's
                REST interface.
            timeout: seconds to wait for a server to connect, and again to answer.
            batch_images: maximum number of images per request; larger lists are sent
                as several requests, one after another.
            api_key: the key that all servers get; None for the environment variable
                PLSC_TF_API_KEY, if it is set.
            tls: whether servers use TLS, with certificates that the system trusts; or
                the path of a PEM file with the certificates to trust instead.

        Raises:
            ValueError: an address or api_key is malformed, or batch_images below 1.
            OSError: the file of certificates cannot be read.
        """
        rule = "batch_images must be at least 1"
        require(batch_images >= 1, rule, batch_images=batch_images)
        self._model, self._batch_images = model, batch_images
        self._connect = functools.partial(Connection, timeout=timeout)
        if tls is not False:
            context = ssl.create_default_context(cafile=None if tls is True else tls)
            options = {"timeout": timeout, "context": context}
            self._connect = functools.partial(TLSConnection, **options)
        self._headers = {"Content-Type": "application/json"}
        if api_key is None:
            api_key = os.environ.get("PLSC_TF_API_KEY", "")
        if api_key:
            # http.client's own error would show the key.
            if not re.fullmatch("[!-~]+", api_key):
                raise ValueError("api_key must consist of ASCII characters, no blanks.")
            self._headers["Authorization"] = f"Bearer {api_key}"
        # Threads share both without a lock: Python appends and counts in one step.
        self._servers, self._turns = [], itertools.count()
        self.connect_all_server(servers)

    def connect(self, server: str = "127.0.0.1:8010") -> "Client":
        """Adds a server, host:port; returns the client."""
        shared = self._connect, self._headers, self._model
        self._servers.append(_Server(server, *shared))
        return self

    def connect_all_server(self, server_list: Iterable[str]) -> "Client":
        """Adds several servers (the name is PLSC's); returns the client."""
        for server in server_list:
            self.connect(server)
        return self

    def encode(self, images: Iterable[bytes]) -> np.ndarray:
        """Returns the embeddings of encoded images.

        Args:
            images: N bytes objects, each the content of a JPEG, PNG or GIF file.

        Returns:
            float32 `[N, embedding_size]`; `[0, 0]` if `images` is empty.

        Raises:
            ValueError: `images` does not contain bytes, or a server rejected an image.
            ServiceError: no server answered.
        """
        return self._encode(images, False)[0]

    def encode_with_quality(self, images: Iterable[bytes]) -> tuple[np.ndarray, ...]:
        """Returns what `encode` returns, and the images' qualities.

        The latter are float32 `[N]`, 0 (lowest) to 1. A model that does not know them
        is a ValueError or ServiceError.
        """
        return self._encode(images, True)

    def _encode(self, images, rated):
        texts, size = _texts(images), self._batch_images
        starts = range(0, len(texts), size)
        parts = [self._ask("embeddings", texts[k : k + size], rated) for k in starts]
        if not parts:
            return np.zeros((0, 0), np.float32), np.zeros(0, np.float32)
        arrays, qualities, models = zip(*parts, strict=True)
        _require_one_model(models)
        return np.concatenate(arrays), np.concatenate(qualities)

    def encode_faces(self, photos: Iterable[bytes]) -> list[list[dict]]:
        """Finds the faces in photographs; the server must run with --detect.

        Args:
            photos: N bytes objects, as for `encode`. They are turned as their EXIF data
                say.

        Returns:
            The faces in each photograph, the largest first: N lists of dicts of float32
            arrays. `box` is left, top, right and bottom, in pixels; `points`, `[5, 2]`,
            are x and y of the eyes, the nose and the corners of the mouth; the other
            keys are `embedding` and, if the model knows it, `quality`.

        Raises:
            ValueError, ServiceError: see `encode`.
        """
        parts = [self._ask("faces", text) for text in _texts(photos)]
        _require_one_model(model for _, model in parts)
        return [faces for faces, _ in parts]

    def verify(self, first: bytes, second: bytes) -> dict:
        """Compares two images; the export must have a calibration.

        Args:
            first: the content of an image's file, as for `encode`.
            second: that of the other image.

        Returns:
            "score", the cosine of both embeddings; "llr", its log-likelihood ratio;
            "probability" of the same person, at the calibration's prior; and
            "decision", whether the score exceeds the card's threshold; with calibrated
            groups, "group_llrs", the LLR by each group's calibration.

        Raises:
            ValueError, ServiceError: see `encode`.
        """
        return self._ask("verified", _texts([first, second]))

    def close(self) -> None:
        """Closes the unused connections; `encode` opens new ones."""
        for server in list(self._servers):
            server.close()

    def __exit__(self, *exc):
        """Closes the client."""
        self.close()

    def _ask(self, method, *values):
        failures = []
        for server in self._order():
            try:
                return getattr(server, method)(*values)
            except _Unavailable as failure:
                server.avoided_until = time.monotonic() + failure.seconds
                failures.append(f"{server.address}: {failure}")
        raise ServiceError(f"No server gave a usable answer. {'; '.join(failures)}.")

    def _order(self):
        """Returns all servers, starting with the next in turn, failed ones last."""
        servers, now = list(self._servers), time.monotonic()
        if not servers:
            raise ServiceError("Call connect('host:port') to add a server.")
        turn = next(self._turns) % len(servers)
        order = servers[turn:] + servers[:turn]
        return sorted(order, key=lambda server: server.avoided_until > now)


class FaceService(Client):
    """PLSC's client: like `Client`, but returns embeddings as lists of numbers.

    Example: `fc = FaceService(); fc.connect("127.0.0.1:8010"); fc.encode([image])`.
    """

    def encode(self, images: Iterable[bytes]) -> list[list[float]]:
        """Returns a list of N lists of embedding_size numbers; see `Client.encode`."""
        return super().encode(images).tolist()


def _texts(images):
    """Returns images, bytes objects, as texts in base64."""
    images = list(images)
    for index, image in enumerate(images):
        fits = isinstance(image, (bytes, bytearray, memoryview))
        rule = "images must be a list of bytes (file contents)"
        require(fits, rule, **{f"images[{index}]": type(image).__name__})
    return [base64.b64encode(image).decode("ascii") for image in images]


def _model(answer):
    return str(answer.get("model", ""))[:99]


def _require_one_model(names):
    if len(set(filter(None, names))) > 1:
        raise ServiceError("The model changed meanwhile: encode the images again.")


class _Unavailable(Exception):
    """This server cannot answer now; another might."""

    def __init__(self, message, seconds=_AVOID_SECONDS):
        super().__init__(message)
        self.seconds = seconds


class _Server:
    """A server's address and its unused connections."""

    def __init__(self, address, connect, headers, model):
        self.address = address
        host, _, port = str(address).rpartition(":")
        rule = "A server must be host:port, for example 127.0.0.1:8010"
        is_host = host and "/" not in host
        require(is_host and port.isdecimal(), rule, server=repr(address))
        self._connect = functools.partial(connect, host.strip("[]"), int(port))
        self._headers, self._model = headers, model
        self._speaks_plsc = None  # not known yet
        self._unused = collections.deque()
        self.avoided_until = 0.0

    def close(self):
        """Closes the unused connections."""
        while self._unused:
            self._unused.popleft().close()

    def embeddings(self, texts, rated):
        """Returns what `_rows` does, of base64-encoded images.

        Raises:
            _Unavailable: the server did not answer.
            ValueError: the server rejected the request.
        """
        if self._speaks_plsc is not False:
            status, answer = self._post(_PLSC_PATH, {"base64_string": texts})
            malformed = status == 400 and "Malformed request" in str(answer)
            if status not in (404, 405) and not malformed:
                self._speaks_plsc = True
                return self._rows(status, answer, "instance", len(texts), rated)
            # TensorFlow Serving's answers do not name the model.
            if self._speaks_plsc:
                raise _Unavailable(f"HTTP {status}: {_PLSC_PATH} is gone")
        instances = [{"b64": text} for text in texts]
        reply = self._predict(instances, "quality" if rated else "serving_default")
        rows = self._rows(*reply, "predictions", len(texts), rated)
        # TensorFlow Serving's interface worked, so skip PLSC's path from now on.
        self._speaks_plsc = False
        return rows

    def _predict(self, instances, signature):
        body = {"signature_name": signature, "instances": instances}
        return self._post(f"/v1/models/{self._model}:predict", body)

    def verified(self, texts):
        """Returns the comparison of a pair of base64-encoded images."""
        reply = self._predict([[{"b64": text} for text in texts]], "verify")
        rows = self._items(*reply, "predictions")
        try:
            (found,) = rows
            result = {key: kind(found[key]) for key, kind in _VERIFIED.items()}
            if "group_llrs" in found:
                result["group_llrs"] = [float(one) for one in found["group_llrs"]]
            return result
        except (TypeError, ValueError, OverflowError, LookupError):
            raise _Unavailable("the answer does not have a comparison") from None

    def faces(self, text):
        """Returns (faces in a base64-encoded photograph, model); see `embeddings`."""
        status, answer = self._post(_FACES_PATH, {"base64_string": [text]})
        found = self._items(status, answer, "instance")
        keys = "box", "points", "embedding"
        try:
            (faces,) = [one["faces"] for one in found]
            keys += ("quality",) * all("quality" in face for face in faces)
            faces = [{k: np.array(f[k], np.float32) for k in keys} for f in faces]
            return faces, _model(answer)
        except (TypeError, ValueError, OverflowError, LookupError):
            raise _Unavailable("the answer does not have faces") from None

    def _items(self, status, answer, key):
        """Returns the value of a key in a reply."""
        if not isinstance(answer, dict):
            raise _Unavailable(f"HTTP {status}: the answer is not a JSON object")
        if status != 200:
            reason = self._printable(str(answer.get("error", answer)))
            raise ValueError(f"{self.address} rejected the request: {reason}")
        return answer.get(key) or ()

    def _rows(self, status, answer, key, count, rated):
        """Returns the embeddings, the qualities, and the model's name in a reply."""
        rows = self._items(status, answer, key)
        try:
            # Of a hostile server's answer, objects may take sixty times the bytes.
            rows = rows if len(rows) == count else ()
            rows = [r if isinstance(r, dict) else {"embedding": r} for r in rows]
            array = np.array([r.get("embedding") for r in rows], np.float32)
            found = [r["quality"] if rated else 0 for r in rows]
            qualities = np.array(found, np.float32).reshape(len(array))
        except (TypeError, ValueError, OverflowError, LookupError):
            array = np.zeros(0, np.float32)
        # A server sends null for NaN.
        if array.ndim != 2 or len(array) != count or not np.isfinite(array).all():
            what = "embeddings and qualities" if rated else "embeddings"
            raise _Unavailable(f"the answer does not have {count} {what}")
        return array, qualities, _model(answer)

    def _connection(self, unused):
        """Returns (an unused connection or a new one, whether it was used before)."""
        with contextlib.suppress(IndexError):
            # After a fork, either process could get the other one's answers.
            while (connection := unused.pop()).pid != os.getpid():
                connection.close()
            return connection, True
        connection = self._connect()
        connection.pid = os.getpid()
        return connection, False

    def _post(self, path, value):
        """Returns (status, JSON answer, or None if the answer is not JSON)."""
        body = json.dumps(value).encode()
        for unused in self._unused, []:
            connection, used = self._connection(unused)
            try:
                if used:
                    connection.sock.settimeout(connection.timeout)
                connection.request("POST", path, body, self._headers)
                response, data = receive(connection)
                break
            except _FAILURES as error:
                connection.close()
                # The server may have closed the connection while it was unused, so
                # try again with a new one.
                if not used or isinstance(error, TimeoutError):
                    # It may repeat what the server sent.
                    reason = self._printable(str(error) or type(error).__name__)
                    raise _Unavailable(reason) from error
        if response.will_close:
            connection.close()
        else:
            self._unused.append(connection)
        if response.status in _BUSY_STATUSES:
            seconds = response.headers.get("Retry-After", "")
            avoid = _AVOID_SECONDS
            if seconds.isdecimal():
                avoid = min(float(seconds[:9]), _LONGEST_AVOIDED)
            reason = self._printable(data[: 1 << 16].decode(errors="replace"))
            raise _Unavailable(f"HTTP {response.status}: {reason}", avoid)
        return response.status, parsed(response.status, data)

    def _printable(self, text):
        """Returns text from a server, without the key and what would forge logs."""
        _, _, key = self._headers.get("Authorization", "").partition(" ")
        text = text.replace(key, "...") if key else text
        return "".join(one if one.isprintable() else " " for one in text[:300])
