"""One server process and one small exported model for all tests of the server."""

import pytest
from server_tools import direct, export, picture, running

for name in ("aiohttp", "grpc", "orjson", "prometheus_client", "tensorflow_serving"):
    pytest.importorskip(name, reason="the server needs pip install 'plsc_tf[serving]'")


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    """The export with one version, called `face`."""
    folder = tmp_path_factory.mktemp("serving") / "face"
    export(folder, 1)
    return folder


@pytest.fixture(scope="session")
def server(model_dir):
    """A running server of `model_dir`, with a gallery."""
    gallery = f"--gallery_dir={model_dir.parent / 'people'}"
    small = ["--max_body_mb=1", "--max_image_mb=0.2", "--max_megapixels=1"]
    short = ["--receive_timeout=1.5", "--max_request_images=40"]
    with running(model_dir, gallery, *small, *short) as found:
        yield found


@pytest.fixture(scope="session")
def pictures():
    """Three encoded pictures."""
    return [picture(0), picture(1, (12, 16), "PNG"), picture(2, (40, 16))]


@pytest.fixture(scope="session")
def expected(model_dir, pictures):
    """What the SavedModel itself says about them."""
    return direct(model_dir / "1", pictures)
