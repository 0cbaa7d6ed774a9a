"""Your own images in label.txt, with one "path label" line per image (PLSC)."""

from plsc_tf.data.readers import layouts
from plsc_tf.data.request import DatasetInfo

INFO = DatasetInfo(tfrecords=True)
layout = layouts.images_in_list
