"""Your own images in a list of "path label" lines."""

from plsc_tf.data.readers import layouts
from plsc_tf.data.request import DatasetInfo

INFO = DatasetInfo(
    description="label.txt with one 'path label' line per image (PLSC)",
    tfrecords=True,
)
layout = layouts.images_in_list
examples = layouts.opens(layout)
