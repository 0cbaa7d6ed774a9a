"""Who may call the server. Each comment says what an attacker would gain."""

import contextlib
import hashlib
import json
import os
import re
import resource
import shutil
import ssl
import stat
import subprocess
import threading
import time

import grpc
import pytest
from server_tools import PLSC, ask, b64, connect, narrow, served, wait_for

from plsc_tf import Client, FaceService
from plsc_tf.flags.server import Server
from plsc_tf.options import cli
from plsc_tf.serving.client import ServiceError
from plsc_tf.serving.plsc_server import PLSCServer
from plsc_tf.serving.server import access
from plsc_tf.serving.server.errors import RequestError
from tests.conformance import guide_commands
from tests.programs import ROOT

GUIDE = ROOT / "docs" / "public_server.md"
KEYS = {"app": "embed", "gate": "embed,identify", "desk": "identify,enrol"}
KEYS |= {"probe": "admin", "slow": "embed,admin 0.01"}


def line(name, rights, key=None):
    key = f"{name}-key" if key is None else key
    return f"{name} sha256:{hashlib.sha256(key.encode()).hexdigest()} {rights}\n"


def blocks(language, word):
    return [one for one in guide_commands.blocks(GUIDE, language) if word in one]


def bearer(name):
    return {"Authorization": f"Bearer {name}-key"} if name else {}


def secured(server):
    return server["tls"].wrap_socket(connect(server), server_hostname="localhost")


@pytest.fixture(scope="module")
def keyed(model_dir, tmp_path_factory):
    """A server with keys, TLS, gRPC, a gallery and a version that cannot be loaded."""
    folder = tmp_path_factory.mktemp("access")
    shutil.copytree(model_dir, folder / "face")
    (folder / "face" / "9").mkdir()
    (folder / "face" / "9" / "saved_model.pb").write_bytes(b"rubbish")
    # The page's commands make a key, its line, and a certificate.
    for block in blocks("shell", "openssl"):
        subprocess.run(["bash", "-euc", block], cwd=folder, check=True)
    keys, pair = folder / "keys", (folder / "cert.pem", folder / "key.pem")
    # An empty key is what a script has whose secret is missing.
    text = line("empty", "embed,identify,enrol,admin", "")
    text = keys.read_text() + "# ours\n\n" + text
    keys.write_text(text + "".join(map(line, KEYS, KEYS.values())))
    options = {"api_keys_file": str(keys), "gallery_dir": str(folder / "people")}
    options |= {"tls_certificate": str(pair[0]), "tls_key": str(pair[1])}
    options |= {"grpc_port": 0, "receive_timeout": 1.5, "host": "0.0.0.0"}
    with served(folder / "face", allowed_hosts=("my.site",), **options) as server:
        context = ssl.create_default_context(cafile=pair[0])
        files = {"keys": keys, "certificate": pair[0], "folder": folder}
        yield {**server, **files, "tls": context}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "localhost.net"])
def test_no_keys_no_network(host):
    # Everyone on the network could read the gallery and enrol themselves.
    with pytest.raises(ValueError, match="api_keys_file.*insecure"):
        PLSCServer(host=host)
    with pytest.raises(cli.UsageError, match="api_keys_file.*insecure"):
        cli.parse([f"--host={host}"], ["server"])
    assert Server(host=host, insecure=True).host == host


PAGE = {"Origin": "https://evil.com", "Content-Type": "text/plain"}
REBOUND = {"Host": "evil.com:8010"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        # Any page that a user of this machine opens could enrol and remove people.
        ("POST", "/gallery/enrol", PAGE, 403),
        ("POST", "/gallery/remove", {"Origin": "null"}, 403),
        ("POST", "/gallery/remove", {"Content-Type": "text/plain"}, 415),
        # A service at another port of this machine is not trusted either.
        ("POST", "/gallery/remove", {"Origin": "http://localhost:1"}, 403),
        # After DNS rebinding, the page could also read: who is known, who is who.
        ("GET", "/gallery", REBOUND, 403),
        ("POST", "/gallery/identify", REBOUND, 403),
        ("POST", PLSC, {**REBOUND, "Origin": "http://evil.com:8010"}, 403),
        ("POST", "/v1/models/face:predict", {"Host": "127.0.0.1.evil.com"}, 403),
        ("GET", "/metrics", REBOUND, 403),
        ("GET", "/nothing", {"Host": "[::1"}, 403),
        ("GET", "/metrics", {"Host": "[::1]:1", "Origin": "http://[::1]:1"}, 200),
        ("GET", "/healthz", REBOUND, 200),
    ],
)
def test_pages_of_other_sites(server, method, path, headers, status):
    body = {"name": "nobody", "base64_string": []} if method == "POST" else None
    assert ask(server, method, path, body, headers)[0] == status


def test_other_names_are_allowed_by_an_option(model_dir, keyed):
    with served(model_dir, allowed_hosts=("faces.lan",)) as server:
        headers = {"Host": "faces.lan:80"}
        assert ask(server, "GET", "/metrics", headers=headers)[0] == 200
    # A proxy might add the key to what a page of another site sends.
    for site, status in (("my.site", 200), ("evil.com", 403)):
        headers = {"Origin": f"https://{site}", **bearer("probe")}
        assert ask(keyed, "GET", "/metrics", headers=headers)[0] == status


def test_rights(keyed):
    # A stolen key of a camera must not open the gallery; no key, nothing.
    routes = {
        ("POST", PLSC): "embed",
        ("POST", "/v1/models/face:predict"): "embed",
        ("GET", "/v1/models/face"): "embed",
        ("POST", "/gallery/identify"): "identify",
        ("GET", "/gallery"): "identify",
        ("POST", "/gallery/enrol"): "enrol",
        ("POST", "/gallery/remove"): "enrol",
        ("GET", "/metrics"): "admin",
        ("GET", "/nothing"): "admin",
    }
    for (method, path), right in routes.items():
        body = {"name": "", "base64_string": []} if method == "POST" else None
        for name in (None, "unknown", "app", "gate", "desk", "probe"):
            status = ask(keyed, method, path, body, bearer(name))[0]
            expected = {401} if name not in KEYS else {403}
            if right in KEYS.get(name, ""):
                expected = {200, 400, 404}
            assert status in expected, (path, name)


def test_what_is_not_a_key(keyed):
    for text in ("Bearer", "Bearer ", "Basic app-key", "app-key", "Bearer \xff", ""):
        headers = {"Authorization": text.encode("latin-1")}
        status, _, answered = ask(keyed, "GET", "/v1/models/face", headers=headers)
        assert (status, answered["WWW-Authenticate"]) == (401, "Bearer"), text
    # The error of a version would name folders.
    assert ask(keyed, "GET", "/healthz")[1] == {"status": "serving"}
    states = ask(keyed, "GET", "/v1/models/face/versions/9", headers=bearer("app"))
    assert "'It could not be loaded.'" in str(states)


def test_grpc(keyed):
    # gRPC would be a second door.
    trust = grpc.ssl_channel_credentials(keyed["certificate"].read_bytes())
    with grpc.secure_channel(f"localhost:{keyed['grpc_port']}", trust) as channel:

        def code(name, method="ModelService/GetModelStatus", sent=b"\n\6\n\4face"):
            call = channel.stream_unary(f"/tensorflow.serving.{method}")
            headers = [("authorization", f"Bearer {name}-key")] if name else None
            try:
                call(sent and iter([sent]) or endless(), 20, metadata=headers)
            except grpc.RpcError as error:
                return error.code().name
            return "OK"

        def endless():
            answered.wait(60)
            yield b""

        assert code("app") == "OK"
        assert code("desk") == "PERMISSION_DENIED"
        assert code("unknown") == code(None) == "UNAUTHENTICATED"
        assert code(None, "No/Method") == "UNAUTHENTICATED"
        # Messages of strangers would fill the memory: the answer does not wait for one.
        answered = threading.Event()
        assert code(None, sent=None) == "UNAUTHENTICATED"
        answered.set()
        assert [code("slow"), code("slow")] == ["OK", "RESOURCE_EXHAUSTED"]
    # One client with a key could take the whole server; HTTP shares the limit.
    status, _, headers = ask(keyed, "GET", "/metrics", headers=bearer("slow"))
    assert status == 429 and 50 < int(headers["Retry-After"]) <= 100
    assert ask(keyed, "GET", "/metrics", headers=bearer("probe"))[0] == 200


# Opening it would stop the server.
def test_a_fifo_holds_no_keys(tmp_path):
    os.mkfifo(tmp_path / "keys")
    with pytest.raises(ValueError, match="not a file, but a FIFO"):
        access.read_keys(tmp_path / "keys")


def test_a_removed_key_is_not_valid_while_no_file_can_be_opened(tmp_path):
    # With thousands of connections, its holder would keep it for ever.
    keys = tmp_path / "keys"
    keys.write_text(line("app", "embed"))
    found = access.Access(Server(api_keys_file=str(keys)))
    keys.write_text("# none\n")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(RequestError, match="too many files"):
            found.check_key("Bearer app-key", "embed")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with pytest.raises(RequestError, match="A known key"):
        found.check_key("Bearer app-key", "embed")


def test_keys_change_while_the_server_runs(keyed, caplog):
    # A stolen key would work until the next restart.
    def status(name):
        return ask(keyed, "GET", "/v1/models/face", headers=bearer(name))[0]

    before = keyed["keys"].read_text()
    keyed["keys"].write_text(before.replace("app ", "#") + line("new", "embed"))
    assert (status("app"), status("new")) == (401, 200)
    for broken in ("new new-key embed\n", line("new", "root"), before + before):
        keyed["keys"].write_text(broken)
        assert (status("app"), status("new")) == (401, 200)
    keyed["keys"].unlink()
    assert status("new") == 200
    keyed["keys"].write_text("# none\n")
    assert status("new") == 401
    keyed["keys"].write_text(before)
    assert (status("app"), status("new")) == (200, 401)
    # A copy may keep the size and the time: the stolen key would work on.
    times = keyed["keys"].stat()
    keyed["keys"].write_text(before.replace(line("app", "embed"), line("new", "embed")))
    os.utime(keyed["keys"], ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (status("app"), status("new")) == (401, 200)
    keyed["keys"].write_text(before)
    told = [text for text in caplog.messages if "previous keys" in text]
    assert len(told) == 4 and "-key" not in caplog.text


def test_audit_log(keyed, pictures):
    def change(action, person, **more):
        body = {"name": person, **more}
        return ask(keyed, "POST", f"/gallery/{action}", body, bearer("desk"))[0]

    faces = {"base64_string": [b64(one) for one in pictures]}
    # A name with a line break would forge a line; an escape would command a terminal.
    forged = 'eve\n{"action": "remove"}\x1b[2J\u202e'
    log = keyed["folder"] / "people" / "audit.log"
    with log.open("a") as file:
        file.write('{"time": "2')  # the disk was full
    log.chmod(0o644)  # restored from a backup
    assert change("enrol", forged, **faces) == change("remove", forged) == 200
    assert change("remove", forged) == 404
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    lines = [json.loads(text) for text in log.read_bytes().split(b"\n")[-4:-1]]
    assert all(re.fullmatch(r"20.*\+00:00", one.pop("time")) for one in lines)
    who = {"key": "desk", "address": "127.0.0.1", "person": forged}
    assert lines == [
        {"action": "enrol", **who, "faces": 3, "result": "done"},
        {"action": "remove", **who, "faces": 3, "result": "done"},
        {"action": "remove", **who, "faces": 0, "result": "unknown"},
    ]
    assert log.read_bytes().isascii()
    # Who hangs up before the answer would enrol without a trace.
    before = log.read_text().count('"enrol"')
    body = json.dumps({"name": "ann", **faces}).encode()
    head = f"POST /gallery/enrol HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    head += "Content-Type: application/json\r\nAuthorization: Bearer desk-key\r\n\r\n"
    for number in range(20):
        with secured(keyed) as link:
            link.sendall(head.encode() + body)
            time.sleep(0.002 * number)
    assert change("enrol", "last", **faces) == 200

    def recorded():
        enrolled = log.read_text().count('"enrol"') - before
        about = ask(keyed, "GET", "/gallery", headers=bearer("desk"))[1]
        return about["faces"] == 3 * enrolled > 3

    wait_for(recorded)


def test_clients_with_key_and_tls(keyed, pictures, monkeypatch):
    address, trust = f"localhost:{keyed['port']}", str(keyed["certificate"])
    with FaceService(address, tls=trust, api_key="app-key") as service:
        assert len(service.encode(pictures)) == 3
    monkeypatch.setenv("PLSC_TF_API_KEY", "gate-key")
    with Client(address, tls=trust) as client:
        assert len(client.encode(pictures)) == 3
    with Client(address, tls=trust, api_key="no-key") as client:
        with pytest.raises(ValueError, match="A known key is required"):
            client.encode(pictures)
    # Someone between client and server would get the key, and faces.
    for tls in (True, False):
        with Client(address, tls=tls) as client, pytest.raises(ServiceError):
            client.encode(pictures)
    with pytest.raises(ValueError, match="api_key") as caught:
        Client(address, api_key="gate-key\n")
    assert "gate" not in str(caught.value)


def test_what_the_page_shows(keyed, pictures, monkeypatch):
    monkeypatch.chdir(keyed["folder"])
    (shell,), (python,) = blocks("shell", "curl"), blocks("python", "Client")
    shell = shell.replace("8443", str(keyed["port"]))
    assert '"people":' in guide_commands.run_curl(shell)
    names = {}
    exec(python.replace("8443", str(keyed["port"])), names)  # noqa: S102
    with names["client"] as client:
        assert len(client.encode(pictures)) == 3


def test_tls_keeps_the_limits_of_connections(keyed):
    # Connections that never speak would use up the files of the server.
    with connect(keyed) as silent:
        assert silent.recv(1) == b""
    with secured(keyed) as link:
        assert link.recv(1) == b""
        route = keyed, "GET", "/metrics", None, bearer("probe")
        wait_for(lambda: "plsc_tf_connections 1.0" in ask(*route)[1])


# 6 MB of requests kept 4 GB, as asyncio's TLS hides how much it has encrypted.
def test_answers_over_tls_count_until_they_are_read(keyed, model_dir):
    pair = {"tls_certificate": str(keyed["certificate"])}
    pair |= {"tls_key": str(keyed["folder"] / "key.pem")}
    limits = {"receive_timeout": 600, "max_receiving_mb": 0.001}
    with served(model_dir, **limits, **pair) as server, contextlib.ExitStack() as stack:
        server, wrap = server | {"tls": keyed["tls"]}, keyed["tls"].wrap_socket
        for _ in range(2):
            link = stack.enter_context(
                wrap(narrow(server), server_hostname="localhost")
            )
            link.sendall(40 * b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_for(lambda: "plsc_tf_connections 1.0" in ask(server, "GET", "/metrics")[1])


# The server's thread is busy as long with each of them as with one of 16 KB: 2 MB/s of
# updates of keys, which have 27 bytes, or 70 with blanks, stopped it.
def test_small_records_of_tls_end_the_connection(keyed):
    head = b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 7000 + b"\r\n\r\n"

    def answer(size):
        with secured(keyed) as link, contextlib.suppress(OSError):
            for start in range(0, len(head), size):
                link.send(head[start : start + size])
            return link.recv(1000)

    assert answer(500).startswith(b"HTTP/1.1 200")
    assert not answer(1) and not answer(70)
    with secured(keyed) as link:
        for _ in range(200):
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert link.recv(1000).startswith(b"HTTP/1.1 200")


def test_files_that_do_not_fit_are_told_at_the_start(keyed, model_dir):
    wrong = {"tls_certificate": str(keyed["keys"]), "tls_key": str(keyed["keys"])}
    for options, words in (
        ({"tls_key": "key.pem"}, "set together"),
        (wrong, "belong together"),
        ({"api_keys_file": str(keyed["certificate"])}, "Line 1 of"),
    ):
        with pytest.raises(ValueError, match=words):
            with served(model_dir, **options):
                pass
