"""Your own images in label.txt, with one "path label" line per image (PLSC)."""

from plsc_tf.data.readers import layouts

INFO = layouts.DatasetInfo(tfrecords=True)
layout = layouts.images_in_list
