"""Your own images in class folders: JPEG, PNG or GIF files, nested or not."""

from plsc_tf.data.readers import layouts

INFO = layouts.DatasetInfo(tfrecords=True)
layout = layouts.images_in_folders
