"""Embeddings equal those of arcface_torch itself, where it and PyTorch are at hand.

PLSC_TF_ARCFACE_TORCH names a folder `recognition/arcface_torch` of insightface.
"""

import os
import sys

import keras
import numpy as np
import pytest

from plsc_tf.jobs import import_checkpoint, trained
from plsc_tf.options.settings import Settings

CLASSES, SIZE = 10, 64


@pytest.fixture(scope="module")
def get_model():
    folder = os.environ.get("PLSC_TF_ARCFACE_TORCH", "")
    if not folder:
        pytest.skip("PLSC_TF_ARCFACE_TORCH names no checkout of arcface_torch")
    pytest.importorskip("torch", reason="PyTorch (extra [torch]) is missing")
    sys.path.insert(0, folder)
    try:
        from backbones import get_model
    finally:
        sys.path.remove(folder)
    return get_model


def randomised(torch, network, pixels):
    """Random weights, and the batch statistics that go with them."""
    for module in network.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            module.momentum = None
            module.bias.data.normal_(0, 0.2)
            if module.weight.requires_grad:
                module.weight.data.uniform_(0.5, 1.5)
        elif isinstance(module, torch.nn.PReLU):
            module.weight.data.uniform_(0.1, 0.4)
    with torch.no_grad():
        network.train()(pixels)
        return network.eval()(pixels).numpy()


@pytest.mark.parametrize("name", ["r18", "r50"])
def test_embeddings_equal_pytorchs(get_model, tmp_path, name):
    import torch

    torch.manual_seed(0)
    images = np.random.default_rng(0).integers(0, 256, (8, 112, 112, 3), np.uint8)
    pixels = torch.tensor(images).permute(0, 3, 1, 2).float()
    pixels = pixels.div(255).sub(0.5).div(0.5)  # as its dataset.py has it
    network = get_model(name, fp16=False, num_features=SIZE)
    expected = randomised(torch, network, pixels)
    centres = torch.normal(0, 0.01, (CLASSES, SIZE))
    for rank, rows in enumerate((centres[:4], centres[4:7], centres[7:])):
        whole = {
            "state_dict_backbone": network.state_dict(),
            "state_dict_softmax_fc": {"weight": rows.clone()},
        }
        torch.save(whole, tmp_path / f"checkpoint_gpu_{rank}.pt")
    given = {"checkpoint_dir": str(tmp_path / "new"), "num_classes": CLASSES}
    asked = Settings.from_values(
        import_from=str(tmp_path), model_name=name, emb_size=SIZE, **given
    )
    import_checkpoint.import_checkpoint(asked)
    found = trained.load(Settings.from_values(**given, num_replicas=2), with_head=True)
    np.testing.assert_allclose(found.model.embed(images), expected, atol=1e-4)
    stored = found.model.head.weights_as_numpy()
    np.testing.assert_array_equal(stored, centres.numpy())
    keras.backend.clear_session()
