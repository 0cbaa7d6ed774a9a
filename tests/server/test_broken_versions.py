"""Broken versions of a model neither stop the server nor hide sound ones."""

import asyncio
import concurrent.futures
import json
import os
import re
import shutil

from server_tools import PLSC, ask, b64, picture, served

from plsc_tf.flags.server import Server
from plsc_tf.serving.server.app import Metrics
from plsc_tf.serving.server.models import Models


def test_broken_newest_versions_hide_no_sound_one(model_dir, tmp_path):
    # Who can add broken folders would keep the server from starting again.
    folder = tmp_path / "face"
    shutil.copytree(model_dir, folder)
    # With a number of more than 64 bits, its state could not be told, nor any other.
    for version in (*range(9, 34), 10**20):
        (folder / str(version)).mkdir()
        (folder / str(version) / "saved_model.pb").write_bytes(b"rubbish")
    (folder / "34").symlink_to("34")
    # Each of these would be served, and all requests to the gallery would fail.
    bad = [{"threshold": {"cosine": value}} for value in (float("nan"), "0.4", 10**30)]
    # Answers would be long, and to load it would stop all requests.
    bad += [{"fingerprint": "x" * 10**5}, {"other": "x" * 2**22}]
    for version, one in enumerate(bad, 35):
        shutil.copytree(folder / "1", folder / str(version))
        (folder / f"{version}/assets.extra/model_card.json").write_text(json.dumps(one))
    # A copy that is not complete would count as another model each time.
    shutil.copytree(folder / "1", folder / "40", ignore=lambda *_: ["assets.extra"])
    # If TensorFlow opened it, the server would answer nothing, forever.
    shutil.copytree(folder / "1", folder / "41")
    os.mkfifo(folder / "41/assets.extra/words")
    # Without a fingerprint, galleries of any model would be used.
    (folder / "1/assets.extra/model_card.json").write_text('{"fingerprint": ""}')
    with served(folder) as server:
        # A page that rebinds its name would learn the names of folders.
        rebound = ask(server, "GET", "/healthz", headers={"Host": "evil.com"})[1]
        assert rebound == {"status": "serving"}
        status, answer, _ = ask(server, "GET", "/healthz")
        assert (status, answer["status"]) == (200, "serving")
        assert sorted(map(int, answer["failed"])) == [*range(9, 42)]
        assert ask(server, "GET", "/v1/models/face")[0] == 200
        asked = {"base64_string": [b64(picture(0))]}
        assert ask(server, "POST", PLSC, asked)[1]["model"]
        metrics = ask(server, "GET", "/metrics")[1]
        assert "plsc_tf_model_version 1.0" in metrics
        assert 'plsc_tf_model_loads_total{result="failed"} 33.0' in metrics


def test_a_broken_version_is_tried_again_later(model_dir, tmp_path, monkeypatch):
    folder = tmp_path / "face"
    shutil.copytree(model_dir, folder)
    (folder / "9").mkdir()
    (folder / "9" / "saved_model.pb").write_bytes(b"rubbish")
    metrics = Metrics()

    async def count_of(models):
        await models.refresh()
        return int(re.search(rb'loads_total{result="failed"} (\d+)', metrics.text())[1])

    class Loop(asyncio.SelectorEventLoop):
        ahead = 0.0

        def time(self):
            return super().time() + self.ahead

    with (
        concurrent.futures.ThreadPoolExecutor(1) as executor,
        asyncio.Runner(loop_factory=Loop) as runner,
    ):
        models = Models(Server(model_path=str(folder)), executor, metrics)

        def slow(*arguments):
            runner.get_loop().ahead += 60
            raise ValueError

        assert [runner.run(count_of(models)) for _ in range(2)] == [1, 1]
        runner.get_loop().ahead += 11
        with monkeypatch.context() as patch:
            patch.setattr("plsc_tf.serving.server.models.LoadedModel", slow)
            assert runner.run(count_of(models)) == 2
        # It may take a tenth of the time.
        for ahead in (400, 300):
            assert runner.run(count_of(models)) == 2
            runner.get_loop().ahead += ahead
        shutil.rmtree(folder / "9")
        shutil.copytree(folder / "1", folder / "9")
        assert runner.run(count_of(models)) == 2
        assert models.get().version == 9
