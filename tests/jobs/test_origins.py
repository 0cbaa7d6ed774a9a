"""Origins and licenses of data and models: stated once, and passed on."""

import shutil
import types

import numpy as np
import pytest

from plsc_tf.checkpoints import catalog, manifest
from plsc_tf.jobs import convert, export, import_checkpoint, origins, train
from plsc_tf.options.settings import Settings
from tests.checkpoints.small import save
from tests.jobs.tiny_run import NETWORK, on_one_replica
from tests.seeds.commands import class_folders
from tests.serving.tiny import read

RANKS = {"MIT": 0, "cc-by-4.0 ": 0, "LicenseRef-commercial": 0, "": 1, "see page": 1}
RANKS |= {"commercial use prohibited": 1, "CC-BY-NC-4.0": 2, "LicenseRef-nc": 2}
RANKS |= {"academic research only": 2, "Non-commercial": 2, "Non Commercial MIT": 2}


@pytest.mark.parametrize("seed", range(50))
def test_in_any_graph_the_most_restrictive_origin_decides(seed):
    rng = np.random.default_rng(seed)
    licenses = rng.choice(list(RANKS), 6).tolist()
    nodes = [
        ([{"kind": "data set", "name": str(i), "license": text}], {i})
        for i, text in enumerate(licenses)
    ]
    for _ in range(12):
        chosen = [nodes[i] for i in rng.integers(len(nodes), size=1 + rng.integers(3))]
        found, reached = zip(*chosen, strict=True)
        nodes.append((origins.merge(*found), set().union(*reached)))
    for found, reached in nodes:
        assert {one["name"] for one in found} == set(map(str, reached))
        assert len(found) == len(reached)
        worst = max(RANKS[licenses[i]] for i in reached)
        assert origins.facts(found)["permitted_use"] == origins.USES[worst]


def test_nothing_known_permits_nothing():
    assert origins.facts([])["permitted_use"] == "unknown"
    with pytest.raises(ValueError, match="every origin must be known to permit"):
        origins.checked_facts(Settings.from_values(require_license="commercial"), [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("license = ", "must be a TOML file"),
        (f"a = {'[' * 5_000}", "must be a TOML file"),
        ("license = 3", "may state name, license, .* each as a line of text"),
        ("licence = 'MIT'", "toml may state name, license, .* key='licence'"),
        (r'source = "a\u007f"', "each as a line of text"),
        ("source = 'http://me:secret@a.org'", "no password. .* key='source'"),
        (".".join("a" * 5_000), "must have at most 8,192 bytes"),
    ],
)
def test_wrong_statements_are_refused(tmp_path, text, message):
    (tmp_path / "DATASET.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        origins.read_statement(str(tmp_path))


def test_files_have_the_license_of_their_own_folder(tmp_path):
    for name, license in ("sets", "MIT"), ("a", "MIT"), ("b", "CC-BY-NC-4.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "DATASET.toml").write_text(f"license = '{license}'")
        (tmp_path / name / "1.tfrecord").write_bytes(b"")
    names = str(tmp_path / "[ab]" / "*.tfrecord"), "1.tfrecord"
    asked = Settings.from_values(dataset_dir=str(tmp_path / "sets"), train_files=names)
    assert origins.place_of(asked.dataset) == str(tmp_path / "b")


def settings(folder, photos, **changes):
    data = {"dataset_name": "folder", "dataset_dir": str(photos), "num_classes": 2}
    return on_one_replica(folder, **{**data, "num_epochs": 1, **changes})


def stored(folder):
    """Returns {name: use} of a run's newest checkpoint."""
    [*_, (_, path)] = catalog.find_all(str(folder))
    listed = manifest.read(path)["state"]["origins"]
    return {one["name"]: origins.use_of(one) for one in listed}


def test_licenses_go_from_the_data_into_the_export(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in first, second:
        class_folders(folder, 2, 6 if folder is first else 5)
    (second / "DATASET.toml").write_text("name = 'two'\nlicense = 'CC-BY-NC-4.0'")
    one, two = tmp_path / "one", tmp_path / "two"
    commercial = {"require_license": "commercial"}
    with pytest.raises(ValueError, match="State the license in DATASET.toml beside"):
        train.train(settings(one, first, **commercial))
    assert not one.exists() or not catalog.find_all(str(one))
    train.train(settings(one, first))
    assert stored(one) == {"first": "unknown"}  # and not its path
    # The same data, whose license is known by now.
    (first / "DATASET.toml").write_text("name = 'one'\nlicense = 'MIT'")
    train.train(settings(one, first, **commercial, num_epochs=2))
    assert stored(one) == {"one": "commercial"}
    start = {"checkpoint_dir": str(one), "export_at_end": True}
    with pytest.raises(ValueError, match="name: two, license: CC-BY-NC-4.0"):
        train.train(settings(two, second, **commercial, **start))
    _, results = train.train(settings(two, second, **start))
    assert stored(two) == {"two": "non-commercial", "one": "commercial"}
    content = read(results["export_dir"], "model_card.json")
    assert content["permitted_use"] == "non-commercial"
    [teacher] = origins.of_teacher(str(two / "export"))
    assert origins.use_of(teacher) == "non-commercial"
    listed = content["origins"].split("; ")
    assert listed[1] == "kind: data set, name: one, license: MIT, use: commercial"
    asked = Settings.from_values(
        checkpoint_dir=str(two), export_dir=str(tmp_path / "e"), **commercial
    )
    with pytest.raises(ValueError, match="every origin must be known to permit"):
        export.export_checkpoint(asked)
    assert not (tmp_path / "e" / "1").exists()


def test_a_resume_keeps_the_license_of_what_the_run_started_from(tmp_path):
    # Of two data sets with images of the same names, one is the run's own.
    kind = {"kind": "data set", "contents": "c"}
    names = {"own": "MIT", "before": "CC-BY-NC-4.0"}
    stated = [{**kind, "name": n, "license": text} for n, text in names.items()]
    path = save(tmp_path / "0", origins=stated)
    source = types.SimpleNamespace(name="own", contents=lambda: "c")
    asked = Settings.from_values(license="CC0-1.0")
    found = origins.of_run(asked, source, path, own=True)
    assert [one["license"] for one in found] == ["CC0-1.0", "CC-BY-NC-4.0"]
    # All checkpoints of the run would be too long to be read, from the first one on.
    forged = save(tmp_path / "1", origins=[{**stated[0], "name": "," * 300_000}])
    with pytest.raises(ValueError, match="262,144 characters"):
        origins.of_run(asked, source, forged, own=True)


def test_a_conversion_passes_on_what_is_stated(tmp_path):
    class_folders(tmp_path / "photos", 2, 3)
    text = 'license = "CC0-1.0"\nsource = "Zoë’s \\"camera\\""\n'
    (tmp_path / "photos" / "DATASET.toml").write_text(text, "utf-8")
    asked = {"dataset_name": "folder", "dataset_dir": str(tmp_path / "photos")}
    output = tmp_path / "shards"
    for _ in range(2):  # again, when it is already done
        convert.convert(
            Settings.from_values(**asked, output_dir=str(output), num_shards=2)
        )
        found = origins.read_statement(str(output))
        assert found == {"license": "CC0-1.0", "source": 'Zoë’s "camera"'}
    archive = shutil.make_archive(str(tmp_path / "zip"), "zip", tmp_path / "photos")
    assert origins.read_statement(archive) == found
    # Whoever made the archive could otherwise choose the license.
    (tmp_path / "DATASET.toml").write_text('license = "research only"')
    assert origins.read_statement(archive) == {"license": "research only"}


def test_a_file_to_import_must_have_the_stated_checksum(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"another file")
    asked = {**NETWORK, "import_from": str(path), "sha256": "0" * 64}
    asked["checkpoint_dir"] = str(tmp_path / "imported")
    with pytest.raises(ValueError, match="must have the SHA-256 that is stated, not "):
        import_checkpoint.import_checkpoint(Settings.from_values(**asked))
