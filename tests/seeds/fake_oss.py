"""A server that answers read requests like Alibaba's object store."""

import http.server
import threading
import urllib.parse
from xml.sax.saxutils import escape

DATE = "2020-01-01T00:00:00.000Z"


class FakeOss(http.server.ThreadingHTTPServer):
    """Serves objects on loopback to requests signed by one user.

    Args:
        objects: `{name: bytes}`; a folder is an object whose name ends with a slash.
        user: access key ID of the user.

    Attributes:
        endpoint: host and port of the server.
    """

    def __init__(self, objects, user):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects, self.user = objects, user
        self.endpoint = f"localhost:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Logs nothing, to keep standard error clean."""

    def do_GET(self):
        parts = urllib.parse.urlsplit(self.path)
        name = urllib.parse.unquote(parts.path).lstrip("/")
        signed = self.headers.get("Authorization", "")
        if not signed.startswith(f"OSS {self.server.user}:"):
            self._send(403, b"<Error><Code>AccessDenied</Code></Error>")
        elif not name:
            self._send(200, self._listing(dict(urllib.parse.parse_qsl(parts.query))))
        elif name not in self.server.objects:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")
        else:
            self._object(self.server.objects[name])

    do_HEAD = do_GET

    def _object(self, data):
        wanted = self.headers.get("Range")
        if not wanted or self.command == "HEAD":
            self._send(200, data)
            return
        first, last = wanted.partition("=")[2].split("-")
        end = min(int(last or len(data) - 1), len(data) - 1) + 1
        self._send(206, data[int(first) : end], f"bytes {first}-{end - 1}/{len(data)}")

    def _listing(self, query):
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        entries, folders = [], set()
        for name, data in sorted(self.server.objects.items()):
            rest = name.removeprefix(prefix)
            if not name.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            entries.append(
                f"<Contents><Key>{escape(name)}</Key><LastModified>{DATE}"
                f"</LastModified><Size>{len(data)}</Size></Contents>"
            )
        entries += [
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        ]
        return (
            "<ListBucketResult><IsTruncated>false</IsTruncated>"
            f"{''.join(entries)}</ListBucketResult>"
        ).encode()

    def _send(self, status, data, part=""):
        self.send_response(status)
        self.send_header("x-oss-object-type", "Normal")
        self.send_header("Last-Modified", "Wed, 01 Jan 2020 00:00:00 GMT")
        self.send_header("Content-Length", str(len(data)))
        if part:
            self.send_header("Content-Range", part)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
