"""Clients: images to one server or several, embeddings back.

    service = FaceService()
    service.connect("127.0.0.1:8010")
    embeddings = service.encode([open("photo.jpg", "rb").read()])

Needs only numpy, no TensorFlow.
"""

import base64
import collections
import http.client
import json
import threading
import time
from collections.abc import Iterable

import numpy as np

_PLSC_PATH = "/FaceClassifyService/inference"
# Seconds that a server which failed is left alone; twice as long every time.
_FIRST_REST, _LONGEST_REST = 0.5, 30.0
# Statuses that may differ on another server, or later.
_ELSEWHERE = (429, *range(500, 600))
# Sockets fail with OSError, broken answers with HTTPException.
_FAILURES = (OSError, http.client.HTTPException)


class ServiceError(RuntimeError):
    """No server answered; the message has the failure of each of them."""


class Client:
    """Embeddings from servers that take turns; thread-safe.

    Example: `Client("10.0.0.1:8010", "10.0.0.2:8010").encode(images)`.

    A server that fails, is busy or too slow is left alone for a while, and its
    request goes to the next one: an embedding can be requested twice. A request that
    is wrong itself is a ValueError and goes nowhere else.
    """

    def __init__(
        self,
        *servers: str,
        model: str = "face",
        protocol: str = "auto",
        timeout: float = 10.0,
        batch_images: int = 64,
    ):
        """Connects with the first request.

        Args:
            *servers: addresses, host:port.
            model: the model's name, for TensorFlow Serving.
            protocol: "plsc", "tensorflow" (its REST interface), or "auto": PLSC's,
                or TensorFlow Serving's if the server does not know that.
            timeout: seconds that a server may be silent: to connect, and to answer.
            batch_images: most images of a request; more are sent one after another.

        Raises:
            ValueError: an argument has the wrong form.
        """
        if protocol not in ("auto", "plsc", "tensorflow"):
            raise ValueError(
                "protocol must be auto, plsc or tensorflow. Received: "
                f"protocol={protocol!r}."
            )
        if batch_images < 1 or timeout <= 0:
            raise ValueError(
                "batch_images must be at least 1 and timeout above 0. Received: "
                f"batch_images={batch_images}, timeout={timeout}."
            )
        self._model, self._protocol = model, protocol
        self._timeout, self._batch_images = timeout, batch_images
        self._lock = threading.Lock()
        self._servers, self._turn = [], 0
        self.connect_all_server(servers)

    def connect(self, server: str = "127.0.0.1:8010") -> "Client":
        """Adds a server, host:port; returns the client."""
        added = _Server(server, self._timeout, self._protocol, self._model)
        with self._lock:
            self._servers.append(added)
        return self

    def connect_all_server(self, server_list: Iterable[str]) -> "Client":
        """Adds several servers (PLSC's name of it); returns the client."""
        for server in server_list:
            self.connect(server)
        return self

    def encode(self, images: Iterable[bytes]) -> np.ndarray:
        """Returns embeddings of encoded images.

        Args:
            images: list of N bytes: the content of JPEG, PNG or GIF files.

        Returns:
            float32 [N, embedding_size]; [0, 0] for no images.

        Raises:
            ValueError: a server says that an image is wrong.
            ServiceError: no server answered.
        """
        images = list(images)
        for index, image in enumerate(images):
            if not isinstance(image, (bytes, bytearray, memoryview)):
                raise ValueError(
                    "images must be a list of bytes, the contents of files. Received: "
                    f"images[{index}] of type {type(image).__name__}."
                )
        parts = [
            self._encode(images[start : start + self._batch_images])
            for start in range(0, len(images), self._batch_images)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, 0), np.float32)

    def close(self) -> None:
        """Closes all connections; `encode` opens them again."""
        with self._lock:
            servers = list(self._servers)
        for server in servers:
            server.close()

    def __enter__(self):
        """Returns the client itself."""
        return self

    def __exit__(self, *exc):
        """Closes."""
        self.close()

    def _encode(self, images):
        texts = [base64.b64encode(image).decode("ascii") for image in images]
        failures = []
        for server in self._order():
            try:
                return server.embeddings(texts)
            except _Elsewhere as failure:
                server.failed(failure.seconds)
                failures.append(f"{server.address}: {failure}")
        raise ServiceError(f"No server answered. {'; '.join(failures)}.")

    def _order(self):
        """All servers, beginning with the next one's turn; failed ones last."""
        with self._lock:
            if not self._servers:
                raise ServiceError("There is no server: call connect('host:port').")
            turn = self._turn % len(self._servers)
            self._turn += 1
            order = self._servers[turn:] + self._servers[:turn]
        now = time.monotonic()
        return sorted(order, key=lambda server: server.rests_until > now)


class FaceService(Client):
    """PLSC's client: as `Client`, but embeddings are lists of numbers.

    Example: `fc = FaceService(); fc.connect("127.0.0.1:8010"); fc.encode([image])`.
    """

    def encode(self, images: Iterable[bytes]) -> list[list[float]]:
        """Returns a list of N lists of embedding_size numbers; see `Client.encode`."""
        return super().encode(images).tolist()


class _Elsewhere(Exception):
    """A server cannot answer now; another one may."""

    def __init__(self, message, seconds=None):
        super().__init__(message)
        self.seconds = seconds


class _Server:
    """One address, and its connections that are not in use."""

    def __init__(self, address, timeout, protocol, model):
        self.address = address
        host, colon, port = str(address).rpartition(":")
        if not colon or not host or not port.isdecimal():
            raise ValueError(
                f"A server must be host:port, as 127.0.0.1:8010. Received: {address!r}."
            )
        self._host, self._port, self._timeout = host.strip("[]"), int(port), timeout
        self._protocol, self._model = protocol, model
        self._unused = collections.deque()
        self._failures = 0
        self.rests_until = 0.0

    def failed(self, seconds):
        """Leaves the server alone for a while."""
        rest = min(_FIRST_REST * 2**self._failures, _LONGEST_REST)
        self._failures += 1
        self.rests_until = time.monotonic() + (rest if seconds is None else seconds)

    def close(self):
        """Closes unused connections."""
        while self._unused:
            self._unused.popleft().close()

    def embeddings(self, texts):
        """Float32 [N, embedding_size] of images in base64.

        Raises:
            _Elsewhere: the server did not answer.
            ValueError: it refused the request.
        """
        if self._protocol != "tensorflow":
            reply = self._post(_PLSC_PATH, {"base64_string": texts})
            status, answer, _ = reply
            unknown = status in (404, 405) or (
                status == 400 and "Malformed request" in str(answer)
            )
            if self._protocol == "plsc" or not unknown:
                return self._rows(*reply, "instance", len(texts))
        body = {"instances": [{"b64": text} for text in texts]}
        reply = self._post(f"/v1/models/{self._model}:predict", body)
        rows = self._rows(*reply, "predictions", len(texts))
        # PLSC's path is not tried again.
        self._protocol = "tensorflow"
        return rows

    def _rows(self, status, answer, retry, key, count):
        """The embeddings in a reply."""
        reason = "the answer is not JSON"
        if isinstance(answer, dict):
            reason = str(answer.get("error", answer))[:300]
        if status in _ELSEWHERE or not isinstance(answer, dict):
            raise _Elsewhere(f"HTTP {status}: {reason}", retry)
        if status != 200:
            raise ValueError(f"{self.address} refused: {reason}")
        self._failures = 0
        try:
            rows = [
                row.get("embedding") if isinstance(row, dict) else row
                for row in answer.get(key) or ()
            ]
            array = np.array(rows, np.float32)
        except (TypeError, ValueError):
            array = np.zeros(0, np.float32)
        if array.ndim != 2 or len(array) != count:
            raise _Elsewhere(f"did not answer with {count} embeddings")
        return array

    def _post(self, path, value):
        """(status, answer or None, seconds of Retry-After or None)."""
        body = json.dumps(value).encode()
        headers = {"Content-Type": "application/json"}
        while True:
            try:
                connection, used = self._unused.pop(), True
            except IndexError:
                connection = http.client.HTTPConnection(
                    self._host, self._port, timeout=self._timeout
                )
                used = False
            try:
                connection.request("POST", path, body, headers)
                response = connection.getresponse()
                data = response.read()
                break
            except _FAILURES as error:
                connection.close()
                # The server may have closed an unused connection in the meantime.
                if not used or isinstance(error, TimeoutError):
                    raise _Elsewhere(str(error) or type(error).__name__) from error
        if response.will_close:
            connection.close()
        else:
            self._unused.append(connection)
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        seconds = response.headers.get("Retry-After", "")
        return response.status, answer, float(seconds) if seconds.isdecimal() else None
