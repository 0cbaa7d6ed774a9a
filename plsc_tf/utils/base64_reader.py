"""PLSC's reader of base64 files, for `Entry.train_reader`."""

import dataclasses

import numpy as np
import tensorflow as tf

from plsc_tf.data import images
from plsc_tf.data.image_limit import checked
from plsc_tf.data.readers.layouts import DataRequest, images_in_base64


@dataclasses.dataclass(frozen=True)
class Base64Reader:
    """Reads the base64 files of a folder; call it for an iterator of samples.

    Unlike PLSC's reader, it does not need one file per replica, and it shuffles all
    images together. `Entry` uses its `source`.
    """

    data_dir: str
    num_classes: int | None = None

    def source(self):
        """Returns the `Source` of all images."""
        request = DataRequest(str(self.data_dir), num_classes=self.num_classes)
        return images_in_base64(request).open()

    def __call__(self):
        """Yields (float32 [3, h, w] in 0...255, label) in the order of the files."""
        for record in self.source().records():
            image = images.decode(checked(tf.constant(record.image))).numpy()
            yield image.astype(np.float32).transpose(2, 0, 1), record.label


def train(data_dir, num_classes=None):
    """Returns a reader of `<data_dir>/file_list.txt` and the files that it names.

    Args:
        data_dir: the folder.
        num_classes: number of classes; None means the largest label + 1.

    Example:
        entry.train_reader = base64_reader.train("dataset", num_classes=85742)
    """
    return Base64Reader(data_dir, num_classes)
