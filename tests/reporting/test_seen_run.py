"""What a run leaves for people to look at, read back by those who show it."""

import csv
import glob
import importlib.util
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator,
)
from tensorflow.tsl.profiler.protobuf.xplane_pb2 import XSpace

from tests import required
from tests.reporting.conftest import rows_of
from tests.reporting.seen_options import PASSWORD

OF_BOTH = ("loss", "accuracy", "top5_accuracy")
SCALARS = {
    *(*OF_BOTH, "learning_rate", "images_per_second"),
    *(f"verification/mock_{name}" for name in ("accuracy", "threshold", "xnorm")),
    *(f"angles/{name}_mean" for name in ("own_centre", "nearest_other")),
    *(f"epoch/{name}" for name in (*OF_BOTH, "seconds", "seconds_per_step")),
}


@pytest.fixture(scope="module")
def rows(seen):
    return rows_of(seen.folder)


@pytest.fixture(scope="module")
def events(seen):
    return EventAccumulator(str(seen.folder / "tensorboard"), {"tensors": 0}).Reload()


def test_rows_hold_each_step_once_and_the_losses_of_losses_txt(seen, rows):
    assert [row["step"] for row in rows] == list(range(1, 11))
    lines = (seen.folder / "losses.txt").read_text().split("\n")[:-1]
    # The killed steps 6, 7, 8 stand there twice.
    assert [int(line.split()[0]) for line in lines] == [*range(1, 9), *range(6, 11)]
    last = {int(n): float.fromhex(x) for n, x in (line.split() for line in lines)}
    assert {row["step"]: row["loss"] for row in rows} == last
    assert set().union(*rows) == SCALARS | {"step"}
    assert "epoch/loss" in rows[4] and "verification/mock_accuracy" in rows[9]


def test_the_table_has_the_same_figures(seen, rows):
    table = csv.DictReader((seen.folder / "metrics.csv").read_text().splitlines())
    assert [{n: float(v) for n, v in row.items() if v} for row in table] == rows


def test_tensorboard_lists_the_series_with_the_same_values(events, rows):
    tags = events.Tags()["tensors"]
    assert set(tags) == SCALARS | {"angles/own_centre", "angles/nearest_other", "input"}
    for name in SCALARS:
        shown = {
            event.step: tf.make_ndarray(event.tensor_proto)
            for event in events.Tensors(name)
        }
        told = {row["step"]: np.float32(row[name]) for row in rows if name in row}
        assert shown == told


def test_tensorboard_has_histograms_and_pictures(events):
    histogram = events.Tensors("angles/own_centre")
    assert [event.step for event in histogram] == [4, 8]
    assert tf.make_ndarray(histogram[0].tensor_proto)[:, 2].sum() == 10  # a batch
    width, height, *images = events.Tensors("input")[0].tensor_proto.string_val
    assert (width, height, len(images)) == (b"16", b"16", 5)
    assert images[0].startswith(b"\x89PNG")


def test_traces_are_of_the_steps_asked_for(seen):
    paths = glob.glob(f"{seen.folder}/tensorboard/plugins/profile/*/*.xplane.pb")
    assert paths
    for path in paths:
        names = {
            plane.event_metadata[event.metadata_id].name
            for plane in XSpace.FromString(open(path, "rb").read()).planes
            for line in plane.lines
            for event in line.events
        }
        assert any("MatMul" in name for name in names)
    assert re.findall(r"Step (\d+) is traced", seen.log) == ["3", "6"]


def test_the_projector_has_points_labels_and_a_sprite(seen):
    folder = seen.folder / "tensorboard"
    config = (folder / "projector_config.pbtxt").read_text()
    named = re.findall(r'_path: "(.*)"', config)
    assert set(named) == {"embeddings.tsv", "labels.tsv", "sprite.png"}
    points = np.loadtxt(folder / "embeddings.tsv", delimiter="\t")
    labels = (folder / "labels.tsv").read_text().splitlines()
    assert points.shape == (len(labels), 8)
    side = int(re.search(r"single_image_dim: (\d+)", config)[1])
    per_row = int(np.ceil(np.sqrt(len(labels))))
    assert Image.open(folder / "sprite.png").size == (side * per_row,) * 2


def test_visualdl_reads_its_log(seen, rows):
    python = os.environ.get("PLSC_TF_VISUALDL_PYTHON", "")
    if not python and importlib.util.find_spec("visualdl") is None:
        required.skip(
            "VISUALDL",
            "VisualDL needs other versions than TensorFlow: install it into an "
            "environment of its own, and name its python in PLSC_TF_VISUALDL_PYTHON",
        )
    code = """if True:
        import glob, json, sys
        from visualdl import LogReader
        (path,) = glob.glob(sys.argv[1] + "/vdlrecords.*")
        reader = LogReader(file_path=path)
        loss = [[d.id, d.value] for d in reader.get_data("scalar", "loss")]
        print(json.dumps([reader.get_tags(), loss]))
    """
    command = [python or sys.executable, "-c", code, str(seen.folder / "visualdl")]
    environ = {"PATH": os.environ["PATH"]}
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stderr
    tags, loss = json.loads(done.stdout)
    assert set(tags["scalar"]) == SCALARS
    assert loss == [[row["step"], np.float32(row["loss"])] for row in rows]


def test_the_report_tells_the_run_and_no_password(seen):
    page = (seen.folder / "report.html").read_text()
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    for expected in (
        "Training of lenet on mock",
        "mock: verification accuracy",
        "log_loss_every_n_iters",
        "images per step",
        "measured, the process",
        "tensorflow",
        "TF32 on GPUs on",
        "The run was resumed 1 time.",
        "network FLOPs",
        "head parameters",
        "weight 7×8",
        f"{seen.outcome['verification']['mock']['accuracy']:.4f}",
        f"python -m plsc_tf.evaluate --flagfile={seen.folder}/flags.cfg",
        f"--card_dir={seen.folder}/card",
        f"{seen.outcome['loss']:.5g}",
    ):
        assert expected in text
    assert page.count("<svg ") == 5  # loss, accuracy, rate, throughput, angles
    assert not re.search(r"src=\"(?!data:)", page)  # it loads nothing
    links = re.findall(
        r"href=\"([^\"#]*)\"", re.sub("<svg.*?</svg>", "", page, flags=re.S)
    )
    assert set(links) == {"card/card.html", "results.json", "metrics.csv", "flags.cfg"}
    assert ">resumed<" in page
    for path in seen.folder.rglob("*"):
        if path.is_file():
            assert PASSWORD.encode() not in path.read_bytes()


def test_the_loss_plot_is_a_picture(seen):
    image = Image.open(seen.folder / "loss.png")
    image.load()
    assert image.format == "PNG" and min(image.size) > 300


def test_the_log_shows_layers_statistics_and_devices(seen):
    text = seen.log
    layers = text.split("Layers, for the first batch:")[1]
    assert re.search(r"images +5×16×16×3 uint8  mean", layers)
    assert re.search(r"Dense embedding_dense +5×8 float32  mean", layers)
    assert re.search(r"embedding_dense/kernel +1024×8 float32", layers)
    assert re.search(r"head weight +7×8 float32", layers)
    assert re.search(r"head/weight +7×8\n", text.split("Model statistics:")[1])
    assert seen.logs_devices
