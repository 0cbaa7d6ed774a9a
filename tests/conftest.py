"""Devices for the whole test process, and the folder of real images."""

import os
import pathlib

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.fixture(scope="session")
def data_dir():
    """Folder with unpacked real image sets, named by PLSC_TF_TEST_DATA."""
    folder = os.environ.get("PLSC_TF_TEST_DATA", "")
    if not folder:
        pytest.skip("PLSC_TF_TEST_DATA is not set: no real images to test on")
    return pathlib.Path(folder)


@pytest.fixture(scope="session", autouse=True)
def logical_devices():
    """Four CPU replicas; set once, because TensorFlow cannot change them later."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 4
    )
    return tf.config.list_logical_devices("CPU")
