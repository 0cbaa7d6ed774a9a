"""Enrol and identify over HTTP."""

import contextlib
import json
import shutil
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from server_tools import ask, b64, connect, export, picture, served, wait_for

from plsc_tf.serving.gallery import Gallery
from plsc_tf.serving.server.guard import Protocol
from tests.server.test_access import bearer, line
from tests.small_disk import mounted


def names(server, seed, **body):
    """The people who resemble a picture, best first."""
    faced = {"base64_string": faces(seed), "count": 2, **body}
    (one,) = post(server, "identify", **faced)[1]["instance"]
    return [match["name"] for match in one["candidates"]]


def post(server, action, **body):
    status, answer, _ = ask(server, "POST", f"/gallery/{action}", body)
    return status, answer


def faces(*seeds):
    return [b64(picture(seed)) for seed in seeds]


def test_enrol_identify_remove(server):
    ada = {"name": "ada", "faces": 2}
    assert post(server, "enrol", name="ada", base64_string=faces(10, 11)) == (200, ada)
    assert post(server, "enrol", name="bob", base64_string=faces(12))[0] == 200
    status, answer = post(server, "identify", base64_string=faces(11, 12), count=2)
    assert status == 200
    first, second = (one["candidates"] for one in answer["instance"])
    assert [match["name"] for match in first] == ["ada", "bob"]
    assert first[0]["score"] == pytest.approx(1.0, abs=1e-5)
    assert second[0]["name"] == "bob"
    assert names(server, 11, threshold=0.99999) == ["ada"]
    status, about, _ = ask(server, "GET", "/gallery")
    assert (about["people"], about["faces"], about["usable"]) == (2, 3, True)
    assert "plsc_tf_gallery_faces 3.0" in ask(server, "GET", "/metrics")[1]
    assert post(server, "remove", name="ada") == (200, ada)
    assert post(server, "remove", name="ada")[0] == 404
    assert names(server, 11) == ["bob"]
    assert post(server, "remove", name="bob")[0] == 200


def test_embeddings_of_two_models_are_not_compared(tmp_path):
    folder = tmp_path / "face"
    export(folder, 1)
    with served(folder, gallery_dir=str(tmp_path / "people")) as server:

        def is_available(version):
            path = f"/v1/models/face/versions/{version}"
            return "AVAILABLE" in str(ask(server, "GET", path)[1])

        assert post(server, "enrol", name="ada", base64_string=faces(10))[0] == 200
        # The same weights exported again are the same model; others are not.
        export(folder, 1)
        wait_for(lambda: is_available(2))
        assert post(server, "identify", base64_string=faces(10))[0] == 200
        export(folder, 5)
        wait_for(lambda: is_available(3))
        status, answer = post(server, "identify", base64_string=faces(10))
        assert status == 409
        assert "enroll again" in answer["error"]
        assert ask(server, "GET", "/gallery")[1]["usable"] is False


def test_others_do_not_wait_for_a_slow_disk(tmp_path):
    # Who may enroll could stop the server: many faces take seconds to write or remove.
    export(tmp_path / "face", 1)
    database = tmp_path / "people" / "gallery.db"
    with (
        served(tmp_path / "face", gallery_dir=str(database.parent)) as server,
        contextlib.closing(sqlite3.connect(database)) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        other.execute("BEGIN IMMEDIATE")
        writes = pool.submit(post, server, "enrol", name="ada", base64_string=faces(1))
        time.sleep(0.5)
        about = pool.submit(ask, server, "GET", "/gallery")
        time.sleep(0.5)
        assert ask(server, "GET", "/healthz")[0] == 200
        assert "plsc_tf_gallery_faces 0.0" in ask(server, "GET", "/metrics")[1]
        assert not writes.done() and not about.done()
        other.rollback()
        assert writes.result(20)[0] == about.result(20)[0] == 200


def wait_for_images(server, count, headers=None):
    text = f"plsc_tf_images_total {count}.0"
    wait_for(lambda: text in ask(server, "GET", "/metrics", headers=headers)[1])


def held(monkeypatch, action):
    """Lets a method of galleries wait; returns (its arguments so far, the event)."""
    method, calls, continues = getattr(Gallery, action), [], threading.Event()

    def waiting(self, *arguments, **options):
        calls.append(arguments)
        continues.wait(30)
        return method(self, *arguments, **options)

    monkeypatch.setattr(Gallery, action, waiting)
    return calls, continues


@pytest.mark.parametrize("next_one", ["", "GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n"])
def test_changes_of_clients_that_are_gone_pile_up_nowhere(
    model_dir, tmp_path, monkeypatch, next_one
):
    # Who may enroll could hang up after each request: two hundred a second kept all
    # others from being identified, for minutes, and then the server from ending.
    calls, continues = held(monkeypatch, "enrol")
    body = json.dumps({"name": "eve", "base64_string": faces(1)})
    head = f"POST /gallery/enrol HTTP/1.1\r\nHost: [::1]\r\nContent-Length: {len(body)}"
    head += "\r\nContent-Type: application/json\r\n\r\n"
    with served(model_dir, gallery_dir=str(tmp_path / "people")) as server:
        links = [connect(server, (head + body + next_one).encode()) for _ in range(6)]
        wait_for(lambda: calls)
        wait_for_images(server, 6)
        for link in links:
            link.close()
        only_this = "plsc_tf_connections 1.0"
        wait_for(lambda: next_one or only_this in ask(server, "GET", "/metrics")[1])
        assert post(server, "identify", base64_string=faces(1))[0] == 200
        continues.set()
        assert post(server, "enrol", name="ada", base64_string=faces(2))[0] == 200
    assert [name for name, _ in calls] == ["eve", "ada"]


def test_a_change_that_fails_gives_back_its_turn(model_dir, tmp_path, monkeypatch):
    # Clients that vanished over TLS at a certain moment ended all later changes.
    with served(model_dir, gallery_dir=str(tmp_path / "people")) as server:
        with monkeypatch.context() as patch:
            patch.setattr(Protocol, "is_gone", property(lambda _: 1 / 0))
            assert post(server, "remove", name="ada")[0] == 500
        assert post(server, "remove", name="ada")[0] == 404


def test_a_key_that_searches_keeps_no_other_waiting(model_dir, tmp_path, monkeypatch):
    # With a hundred requests at a time, or two hundred for the number of people, a key
    # kept all others waiting for a minute.
    found, continues = held(monkeypatch, "identify")
    people = property(lambda gallery: gallery.identify([8 * [1]]))
    monkeypatch.setattr(Gallery, "num_people", people)
    keys, path, own = tmp_path / "keys", "/gallery/identify", bearer("gate")
    keys.write_text(line("gate", "identify,admin") + line("desk", "identify"))
    options = {"gallery_dir": str(tmp_path / "people"), "api_keys_file": str(keys)}
    with served(model_dir, **options) as server, ThreadPoolExecutor(6) as pool:
        for number, key in enumerate(2 * ["desk"] + ["gate"]):  # which asks for two
            pool.submit(ask, server, "GET", "/gallery", None, bearer("desk"))
            body = {"base64_string": faces(*range(1 + number // 2))}
            pool.submit(ask, server, "POST", path, body, bearer(key))
            wait_for_images(server, number + 1 + number // 2, own)
        assert ask(server, "GET", "/healthz")[0] == 200
        continues.set()
        wait_for(lambda: len(found) == 6)
    assert 2 in [len(embeddings) for (embeddings,) in found[:3]]


def test_a_search_of_many_images_lets_others_pass(model_dir, tmp_path, monkeypatch):
    # In a gallery of a million faces, ten requests of a key that may only identify
    # would keep all others waiting for a minute.
    calls, continues = held(monkeypatch, "identify")
    continues.set()
    with served(model_dir, gallery_dir=str(tmp_path / "people")) as server:
        assert post(server, "enrol", name="ada", base64_string=faces(10))[0] == 200
        many = faces(*range(70))
        # An answer of 27 MB to a request of 30 KB; if never read, it stayed in memory.
        refused = post(server, "identify", base64_string=many, count=72)
        status, answer = post(server, "identify", base64_string=many, count=1)
    message = "count must be an integer, 1 to 71 for 70 images."
    assert refused == (400, {"error": message})
    assert (status, [len(one) for (one,) in calls]) == (200, [32, 32, 6])
    scores = [one["candidates"][0]["score"] for one in answer["instance"]]
    assert max(range(70), key=scores.__getitem__) == 10


def test_searches_do_not_wait_with_what_they_found(model_dir, tmp_path, monkeypatch):
    # 500 of them, with 5 MB each, filled the memory.
    calls, continues = held(monkeypatch, "identify")
    options = {"gallery_dir": str(tmp_path / "people")}
    with served(model_dir, **options) as server, ThreadPoolExecutor(6) as pool:
        for _ in range(6):
            pool.submit(post, server, "identify", base64_string=faces(*range(40)))
        wait_for_images(server, 240)
        continues.set()
    sizes = [len(one) for (one,) in calls]
    begun, ended = (np.cumsum(np.equal(sizes, size)) for size in (32, 8))
    assert ended[-1] == 6 and max(begun - ended) <= 2


def test_a_full_disk_is_an_answer(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    export(tmp_path / "face", 1)
    with mounted(disk, "200k") as folder:
        with served(tmp_path / "face", gallery_dir=str(folder)) as server:
            assert post(server, "enrol", name="ada", base64_string=faces(10))[0] == 200
            (folder / "other").write_bytes(bytes(shutil.disk_usage(folder).free))
            status, answer = post(server, "enrol", name="bob", base64_string=faces(11))
            assert status == 507 and "database or disk is full" in answer["error"]
            assert str(folder) not in answer["error"]
            assert names(server, 11, count=9) == ["ada"]
