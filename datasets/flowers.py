"""Five kinds of flowers, from class folders."""

from plsc_tf.data.readers import layouts
from plsc_tf.data.request import DatasetInfo

INFO = DatasetInfo(
    description="photographs of daisies, dandelions, roses, sunflowers and tulips",
    num_classes=5,
    num_examples=3_670,
    source="The TensorFlow team: Flowers, 2019 (flower_photos, CC BY 2.0)",
    tfrecords=True,
)
layout = layouts.images_in_folders
examples = layouts.opens(layout)
