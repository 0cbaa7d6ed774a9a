"""Decides who may call: clients with keys, and no web pages of other sites.

A browser sends the requests of any page, also to servers that only its machine can
reach. It names the page's site in `Origin`. A page that reaches the server by DNS
rebinding, under a name of its own, has this name in `Host`.
"""

import errno
import hashlib
import hmac
import math
import re
import socket
import time
import typing
import urllib.parse

from absl import logging

from plsc_tf.requirements import require
from plsc_tf.serving.server.errors import RequestError
from plsc_tf.storage import local

RIGHTS = ("embed", "identify", "enrol", "admin")
# {HTTP handler: (its `interface` in the metrics, the right that it requires)}.
_HANDLERS = {
    "plsc": ("plsc", "embed"),
    "tensorflow": ("rest", "embed"),
    "faces": ("faces", "embed"),
    "identify": ("gallery", "identify"),
    "about": ("gallery", "identify"),
    "enrol": ("gallery", "enrol"),
    "remove": ("gallery", "enrol"),
    "health": ("/healthz", None),
    "metrics": ("/metrics", "admin"),
}
# Others, such as that of all unknown paths, whose names could fill the metrics.
_OTHER = ("other", "admin")
_LINE = re.compile(r"(\S+)\s+sha256:([0-9a-f]{64})\s+([\w,]+)(?:\s+(\d*\.?\d+))?")
_ADDRESS = re.compile(r"[0-9.]+|[0-9a-f]*:.*").fullmatch


class Key(typing.NamedTuple):
    """A line of the file of keys; `digest` is the key's SHA-256 in hexadecimal."""

    name: str
    digest: str
    rights: frozenset
    requests_s: float


def read_keys(path: str) -> list[Key]:
    """Reads a file of keys.

    Each line has a name, `sha256:` and the key's SHA-256, rights separated by commas,
    and optionally the number of requests per second. Empty lines and those that start
    with # are skipped.

    Raises:
        ValueError: a line is malformed, or a name or key is repeated.
        OSError: the file cannot be read.
    """
    keys = []
    local.require_file(path)
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(map(str.strip, file), 1):
            if not line or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line)
            rights = frozenset(match[3].split(",") if match else ())
            rate = float(match[4] or "inf") if match else 0.0
            # The message does not repeat the line, which might contain a key.
            rule = f"Line {number} of {path} must be: name, sha256:digest, rights"
            advice = f"Rights are {','.join(RIGHTS)}. Requests per second may follow"
            require(rate and rights <= set(RIGHTS), rule, advice)
            keys.append(Key(match[1], match[2], rights, rate))
    names, digests = {key.name for key in keys}, {key.digest for key in keys}
    if len(names) != len(keys) or len(digests) != len(keys):
        raise ValueError(f"{path} must contain no name or key twice.")
    return keys


class Access:
    """Checks requests.

    Args:
        options: the option group `server`.

    Raises:
        ValueError, OSError: the file of keys is malformed or cannot be read.

    Attributes:
        keyed: whether clients need keys.
    """

    def __init__(self, options):
        self.keyed = bool(options.api_keys_file)
        self._path = options.api_keys_file
        self._allowed = {name.lower() for name in options.allowed_hosts}
        self._names = {"localhost", options.host, socket.gethostname().lower()}
        self._free, self._version, self._keys = {}, None, []
        if self.keyed:
            # Take the version first: a change after it is then read again.
            self._version = local.version(self._path)
            self._keys = read_keys(self._path)
            require(self._keys, f"{self._path} must contain keys")
            if not (options.local or options.tls_certificate):
                logging.warning(
                    "Keys and faces cross the network unencrypted: set tls_certificate "
                    "and tls_key, unless a proxy on a trusted network encrypts."
                )

    def admit(self, request) -> str:
        """Checks an HTTP request; returns its key's name, "" if clients need none.

        Raises:
            RequestError: the request is refused.
        """
        _, required = handler_facts(request)
        if required is None:
            return ""
        if not self.is_ours(request.headers):
            host, origin = map(request.headers.get, ("Host", "Origin"))
            raise RequestError(
                "PERMISSION_DENIED",
                "Web pages of other sites may not call this server: "
                f"Host={(host or '')[:100]}, Origin={origin and origin[:100]}. To "
                "allow a name, start it with --allowed_hosts=name.",
            )
        name = self.check_key(request.headers.get("Authorization"), required)
        # Other types need no permission of the server if a web page sends them.
        # aiohttp's own `content_type` may take a second.
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if required == "enrol" and kind != "application/json":
            message = "Send the header Content-Type: application/json."
            raise RequestError("INVALID_ARGUMENT", message, status=415)
        return name

    def check_key(self, credentials: str | None, required: str) -> str:
        """Returns the name of a key that has a right, "" if clients need no keys.

        Args:
            credentials: "Bearer " and the key, or None.
            required: one of `RIGHTS`.

        Raises:
            RequestError: the key is unknown, has not this right, or is used too often.
        """
        if not self.keyed:
            return ""
        self._reload()
        scheme, _, text = (credentials or "").partition(" ")
        digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
        # Compare all keys, each in constant time, so that times tell nothing.
        found = [key for key in self._keys if hmac.compare_digest(key.digest, digest)]
        if scheme.lower() != "bearer" or not text or not found:
            message = "A known key is required: Authorization: Bearer <key>."
            raise RequestError("UNAUTHENTICATED", message)
        (key,) = found
        if required not in key.rights:
            message = f"The key {key.name} does not have the right {required}."
            raise RequestError("PERMISSION_DENIED", message)
        self._limit(key)
        return key.name

    def _limit(self, key):
        """Lets the requests of one second pass at once, then one every 1 / rate."""
        now, interval = time.monotonic(), 1 / key.requests_s
        free = max(now, self._free.get(key.name, now))
        if (wait := free - now - max(0.0, 1 - interval)) > 0:
            message = f"The key {key.name} allows {key.requests_s:g} requests/s."
            raise RequestError("RESOURCE_EXHAUSTED", message, math.ceil(wait))
        self._free[key.name] = free + interval

    def _reload(self):
        version = local.version(self._path)
        if version == self._version:
            return
        try:
            self._keys = read_keys(self._path)
            self._free.clear()  # rates may have changed
            logging.info("Read %d keys from %s.", len(self._keys), self._path)
        except (OSError, ValueError) as error:
            # With many connections, a client could keep a removed key valid.
            if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
                message = "The keys cannot be read: too many files are open."
                raise RequestError("UNAVAILABLE", message, retry_after=1) from None
            logging.error("The previous keys remain valid: %s", error)
        self._version = version

    def is_ours(self, headers) -> bool:
        """Returns False for a request that a page of another site may have sent."""
        host, origin = headers.get("Host", ""), headers.get("Origin")
        name = _name(f"//{host}")
        # A page of another site has no key to send, and cannot rebind an IP address.
        known = self.keyed or name in self._names | self._allowed or _ADDRESS(name)
        same = origin is None or origin.partition("//")[2] == host
        return bool(known and (same or _name(origin) in self._allowed))


def _name(url):
    try:
        # It takes long to normalize other characters, which browsers do not send.
        return (urllib.parse.urlsplit(url.encode("ascii")).hostname or b"").decode()
    except ValueError:
        return ""


def handler_facts(request) -> tuple[str, str | None]:
    """Returns (`interface` in the metrics, required right) of a request's handler."""
    return _HANDLERS.get(request.match_info.handler.__name__, _OTHER)
