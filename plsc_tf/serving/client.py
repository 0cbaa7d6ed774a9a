"""Clients: pictures to one server or several, embeddings back.

    service = FaceService()
    service.connect("127.0.0.1:8010")
    embeddings = service.encode([open("photo.jpg", "rb").read()])

Needs neither TensorFlow nor anything else beside numpy.
"""

import base64
import collections
import http.client
import json
import threading
import time

import numpy as np

_PLSC_PATH = "/FaceClassifyService/inference"
# Seconds that a server which failed is left alone; twice as long every time.
_FIRST_REST, _LONGEST_REST = 0.5, 30.0
# What another server, or the same one later, may answer.
_ELSEWHERE = (429, 502, 503, 504)
# Sockets fail with OSError, broken answers with HTTPException.
_FAILURES = (OSError, http.client.HTTPException)


class ServiceError(RuntimeError):
    """No server answered; the message says what each of them did."""


class Client:
    """Embeddings from servers that take turns; thread-safe.

    Example: `Client("10.0.0.1:8010", "10.0.0.2:8010").encode(pictures)`.

    A server that fails, is busy or too slow is left alone for a while, and its
    request goes to the next one: an embedding can be asked for twice. A request that
    is wrong itself is a ValueError and goes nowhere else.
    """

    def __init__(
        self, *servers, model="face", protocol="auto", timeout=10.0, batch_images=64
    ):
        """Connects when first asked for something.

        Args:
            *servers: addresses, host:port.
            model: the model's name, for TensorFlow Serving.
            protocol: "plsc", "tensorflow" (its REST interface), or "auto": PLSC's,
                and where that is not known, TensorFlow Serving's.
            timeout: seconds that a server may be silent: to connect, and to answer.
            batch_images: most pictures of a request; more are sent one after another.

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
        for server in servers:
            self.connect(server)

    def connect(self, server="127.0.0.1:8010"):
        """Adds a server, host:port; returns the client."""
        added = _Server(server, self._timeout, self._protocol, self._model)
        with self._lock:
            self._servers.append(added)
        return self

    def connect_all_server(self, server_list):
        """Adds several servers (PLSC's name of it); returns the client."""
        for server in server_list:
            self.connect(server)
        return self

    def encode(self, images):
        """Returns embeddings of encoded pictures.

        Args:
            images: list of N bytes: the content of JPEG, PNG or GIF files.

        Returns:
            float32 [N, embedding_size]; [0, 0] for no pictures.

        Raises:
            ValueError: a server says that a picture is wrong.
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

    def close(self):
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
        said = []
        for server in self._order():
            try:
                return server.embeddings(texts)
            except _Elsewhere as failure:
                server.failed(failure.seconds)
                said.append(f"{server.address}: {failure}")
        raise ServiceError(f"No server answered. {'; '.join(said)}.")

    def _order(self):
        """All servers, beginning with the next one's turn; failed ones last."""
        with self._lock:
            if not self._servers:
                raise ServiceError("No server was given: call connect('host:port').")
            turn, self._turn = self._turn, self._turn + 1
            servers = list(self._servers)
        turn %= len(servers)
        order = servers[turn:] + servers[:turn]
        now = time.monotonic()
        return sorted(order, key=lambda server: server.rests_until > now)


class FaceService(Client):
    """PLSC's client: as `Client`, but embeddings are lists of numbers.

    Example: `fc = FaceService(); fc.connect("127.0.0.1:8010"); fc.encode([image])`.
    """

    def encode(self, images):
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
        self._host, self._port = _split(address)
        self._timeout, self._protocol, self._model = timeout, protocol, model
        self._unused = collections.deque()
        self._failures = 0
        self.rests_until = 0.0

    def failed(self, seconds):
        """Leaves the server alone for a while."""
        rest = min(_FIRST_REST * 2**self._failures, _LONGEST_REST)
        self._failures += 1
        self.rests_until = time.monotonic() + (rest if seconds is None else seconds)

    def close(self):
        """Closes what is not in use."""
        while self._unused:
            self._unused.popleft().close()

    def embeddings(self, texts):
        """Float32 [N, embedding_size] of pictures in base64.

        Raises:
            _Elsewhere: the server did not answer.
            ValueError: it refused the request.
        """
        if self._protocol != "tensorflow":
            status, answer, retry = self._post(_PLSC_PATH, {"base64_string": texts})
            known = status not in (404, 405) and not (
                status == 400 and "Malformed request" in str(answer)
            )
            if self._protocol == "plsc" or known:
                rows = self._checked(status, answer, retry).get("instance")
                rows = [row.get("embedding") for row in rows or ()]
                return self._array(rows, len(texts))
        path = f"/v1/models/{self._model}:predict"
        body = {"instances": [{"b64": text} for text in texts]}
        status, answer, retry = self._post(path, body)
        rows = self._checked(status, answer, retry).get("predictions")
        # From now on without asking first.
        self._protocol = "tensorflow"
        if rows and isinstance(rows[0], dict):
            rows = [row.get("embedding") for row in rows]
        return self._array(rows, len(texts))

    def _checked(self, status, answer, retry):
        if status in _ELSEWHERE:
            raise _Elsewhere(f"HTTP {status}: {_words(answer)}", retry)
        if status >= 500 or not isinstance(answer, dict):
            raise _Elsewhere(f"HTTP {status}: {_words(answer)}")
        if status != 200:
            raise ValueError(f"{self.address} refused: {_words(answer)}")
        self._failures = 0
        return answer

    def _array(self, rows, count):
        try:
            array = np.array(rows, np.float32)
        except (TypeError, ValueError):
            array = np.zeros(0, np.float32)
        if array.ndim != 2 or len(array) != count:
            raise _Elsewhere(f"answered something else than {count} embeddings")
        return array

    def _post(self, path, value):
        """(status, answer, seconds of Retry-After or None)."""
        body = json.dumps(value).encode()
        headers = {"Content-Type": "application/json"}
        while True:
            try:
                connection, used = self._unused.pop(), True
            except IndexError:
                connection, used = self._new(), False
            try:
                connection.request("POST", path, body, headers)
                response = connection.getresponse()
                data = response.read()
            except _FAILURES as error:
                connection.close()
                # A connection that was kept may have been closed in the meantime.
                if used and not isinstance(error, TimeoutError):
                    continue
                words = str(error) or type(error).__name__
                raise _Elsewhere(words) from error
            if response.will_close:
                connection.close()
            else:
                self._unused.append(connection)
            return response.status, _parsed(data), _seconds(response)

    def _new(self):
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)


def _split(address):
    """("host", port) of "host:port" or "[::1]:port"."""
    host, colon, port = str(address).rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise ValueError(
            f"A server must be host:port, as 127.0.0.1:8010. Received: {address!r}."
        )
    return host.strip("[]"), int(port)


def _parsed(data):
    try:
        return json.loads(data)
    except ValueError:
        return None


def _words(answer):
    if isinstance(answer, dict):
        return str(answer.get("error", answer))[:300]
    return "the answer is no JSON"


def _seconds(response):
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else None
