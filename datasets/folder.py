"""Your own images in class folders."""

from plsc_tf.data.readers import layouts
from plsc_tf.data.request import DatasetInfo

INFO = DatasetInfo(
    description="class folders of JPEG, PNG or GIF files, nested or not",
    tfrecords=True,
)
layout = layouts.images_in_folders
examples = layouts.opens(layout)
