"""Your own images in class folders: JPEG, PNG or GIF files, nested or not."""

from plsc_tf.data.readers import layouts
from plsc_tf.data.request import DatasetInfo

INFO = DatasetInfo(tfrecords=True)
layout = layouts.images_in_folders
