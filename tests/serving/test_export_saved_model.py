"""An export is the network, complete, and touches nothing that was there."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from plsc_tf.data import images as image_ops
from plsc_tf.serving import versions
from plsc_tf.serving.export import export_saved_model
from tests import programs
from tests.server.server_tools import picture
from tests.serving import tiny
from tests.serving.tiny import SIZE

# Run in a process without plsc_tf: what a serving machine has.
LOAD_ELSEWHERE = """
import pathlib, sys
import numpy as np
import tensorflow as tf

folder, files, result = sys.argv[1], sys.argv[2:-1], sys.argv[-1]
encoded = tf.constant([pathlib.Path(file).read_bytes() for file in files])
served = tf.saved_model.load(folder).signatures["serving_default"]
np.save(result, served(encoded)["embedding"].numpy())
sys.exit("plsc_tf" in sys.modules)
"""


def serve(folder, signature, inputs):
    signature = tf.saved_model.load(str(folder)).signatures[signature]
    return signature(tf.constant(inputs))["embedding"].numpy()


def test_half_precision_is_for_training_only(tmp_path, set_policy):
    single = tiny.network()
    set_policy("mixed_float16")
    half = tiny.network()
    for weight, other in zip(single.weights, half.weights, strict=True):
        weight.assign(other)
    folder = export_saved_model(half, tmp_path)
    loaded = tf.saved_model.load(folder).signatures["images"]
    kinds = {t.dtype for op in loaded.graph.get_operations() for t in op.outputs}
    assert tf.float16 not in kinds
    # Pixels of 255 and more at a convolution: float16 would be off by 1e-3.
    images = np.random.default_rng(0).uniform(0, 255, (3, *SIZE, 3)).astype("f4")
    found, expected = loaded(tf.constant(images)), single(images, training=False)
    np.testing.assert_allclose(found["embedding"], expected, rtol=1e-5, atol=1e-6)
    assert half.layers[2].compute_dtype == "float16"


def test_a_process_without_plsc_tf_gives_the_networks_embeddings(exported, tmp_path):
    network, folder = exported
    encoded = [picture(0), picture(1, file_format="PNG"), picture(2, SIZE[::-1])]
    for index, one in enumerate(encoded):
        (tmp_path / str(index)).write_bytes(one)
    arguments = [folder, "0", "1", "2", "result.npy"]
    programs.run("-c", LOAD_ELSEWHERE, *arguments, cwd=tmp_path)
    result = np.load(tmp_path / "result.npy")
    assert result.dtype == np.float32
    images = [image_ops.resize(image_ops.decode(one), SIZE) for one in encoded]
    expected = network(tf.cast(tf.stack(images), tf.float32), training=False).numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert np.ptp(result, axis=0).max() > 0.01, "the pictures must differ"


def test_a_bad_image_is_an_error_of_its_request(exported):
    _, folder = exported
    with pytest.raises(tf.errors.InvalidArgumentError):
        serve(folder, "serving_default", [picture(0), picture(1)[:40]])
    with pytest.raises(tf.errors.InvalidArgumentError):
        serve(folder, "serving_default", [b"not an image"])


def test_the_folder_holds_what_tensorflow_serving_expects(exported):
    folder = pathlib.Path(exported[1])
    names = {path.name for path in folder.iterdir()}
    needed = {"saved_model.pb", "variables", "assets.extra"}
    assert needed <= names <= needed | {"fingerprint.pb", "assets"}
    assert [path.name for path in folder.parent.iterdir()] == ["1"]
    card = tiny.read(folder, "model_card.json")
    told = card["image_size"], card["embedding_size"], card["normalize"]
    assert told == (list(SIZE), tiny.EMBEDDING, True)


def test_all_exports_of_a_model_have_its_fingerprint(tmp_path):
    # A gallery and a client take another one for another model.
    def fingerprint(share=1.0, activation="relu", seeds=range(6)):
        def prepare(encoded):
            image = tf.image.central_crop(image_ops.decode(encoded), share)
            return image_ops.resize(image, (2, 2))

        drawn = map(keras.initializers.GlorotNormal, seeds)
        dense = [keras.layers.Dense(4, activation, True, one) for one in drawn]
        layers = [keras.Input((2, 2, 3)), keras.layers.Flatten(), *dense]
        options = {"image_size": (2, 2), "prepare": prepare}
        folder = export_saved_model(keras.Sequential(layers), tmp_path, **options)
        return tiny.read(folder, "model_card.json")["fingerprint"]

    assert fingerprint() == fingerprint()
    # Otherwise, a gallery would compare embeddings that cannot be compared.
    other = {fingerprint(0.5), fingerprint(1.0, "elu")}
    # A network with the weights of two layers exchanged has other embeddings, too.
    assert len({fingerprint(), *other, fingerprint(seeds=(0, 1, 2, 3, 5, 4))}) == 4


class Classifier:
    """A model with more than an embedding: a head that must not travel."""

    def __init__(self):
        self.weights = tf.Variable(np.full([2 * 2 * 3, 4], 0.01, np.float32))
        self.head = tf.Variable(tf.zeros([1000, 4]))

    def inference_network(self):
        return lambda images: tf.reshape(images, [-1, 2 * 2 * 3]) @ self.weights


def test_only_variables_that_the_embedding_reads_are_written(tmp_path):
    (tmp_path / "4").mkdir()
    (tmp_path / "notes").mkdir()
    options = {"image_size": (2, 2), "normalize": True, "model_card": {"steps": 7}}
    folder = export_saved_model(Classifier(), tmp_path, **options)
    stored = tf.train.list_variables(folder + "/variables/variables")
    assert [shape for name, shape in stored if "OBJECT_GRAPH" not in name] == [[12, 4]]
    result = serve(folder, "images", np.full([3, 2, 2, 3], 9.0, np.float32))
    np.testing.assert_allclose(result, 0.5, atol=1e-6)
    card = tiny.read(folder, "model_card.json")
    assert (card["normalize"], card["steps"]) == (True, 7)
    proof = tiny.read(folder, "proof.json")
    assert (proof["pictures"], proof["basis"]) == (3, "images of noise")
    # Versions count on from the largest and are never overwritten.
    assert pathlib.Path(folder).name == "5"
    assert not list((tmp_path / "4").iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"4", "5", "notes"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image_size": None}, r"must be \(height, width\)"),
        ({"image_size": (2, 0)}, r"image_size=\(2, 0\)"),
        ({"image_size": (2, 2, 3)}, r"image_size=\(2, 2, 3\)"),
    ],
)
def test_wrong_arguments_are_named(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        arguments = {"image_size": (2, 2), **arguments}
        export_saved_model(Classifier(), tmp_path, **arguments)


def test_a_destination_that_is_a_file_is_an_error(tmp_path):
    file = tmp_path / "model"
    file.write_text("precious")
    with pytest.raises(FileExistsError, match=str(file)):
        export_saved_model(Classifier(), file, image_size=(2, 2))
    with pytest.raises(OSError, match="Not a directory"):
        export_saved_model(Classifier(), file / "below", image_size=(2, 2))
    assert file.read_text() == "precious"


def test_a_network_that_returns_no_embeddings_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match=r"\[N, embedding_size\].*Received: shape"):
        export_saved_model(lambda images: images, tmp_path, image_size=(2, 2))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["9" * 18, "1" + 18 * "0", f" {'9' * 18}"])
def test_no_version_follows_the_largest(tmp_path, name):
    # A server would load that of the one who made the folder.
    (tmp_path / name).mkdir()
    with pytest.raises(ValueError, match=f"No version can follow {name.strip()} in"):
        export_saved_model(Classifier(), tmp_path, image_size=(2, 2))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_of_versions_is_no_model_itself(tmp_path):
    # A stranger's run could have a program in the folder to which its owner exports.
    (tmp_path / "1").mkdir()
    for folder in (tmp_path, tmp_path / "1"):
        (folder / "saved_model.pb").touch()
    with pytest.raises(FileExistsError, match="and is both"):
        versions.find_models(tmp_path)
    assert versions.find_models(tmp_path / "1") == {1: str(tmp_path / "1")}


@pytest.mark.parametrize("factor", [1.001, np.nan])
def test_a_written_model_that_disagrees_is_not_published(tmp_path, factor):
    network = Classifier()

    def prepare(encoded):
        # Called eagerly for the proof only, when the model has been written.
        if tf.executing_eagerly():
            network.weights.assign(network.weights * factor)
        return image_ops.resize(image_ops.decode(encoded), (2, 2))

    with pytest.raises(RuntimeError, match="disagrees|NaN or infinity"):
        export_saved_model(network, tmp_path, image_size=(2, 2), prepare=prepare)
    assert not list(tmp_path.iterdir())
