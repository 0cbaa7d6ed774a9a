"""Five kinds of flowers, 3,670 photographs, from class folders.

The TensorFlow team: Flowers, 2019 (flower_photos, CC BY 2.0).
"""

from plsc_tf.data.readers import layouts

INFO = layouts.DatasetInfo(num_classes=5, tfrecords=True)
layout = layouts.images_in_folders
