"""Five kinds of flowers, from class folders."""

from plsc_tf.data.readers.by_request import requested_folders
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import Source

INFO = DatasetInfo(
    description="photographs of daisies, dandelions, roses, sunflowers and tulips",
    num_classes=5,
    num_examples=3_670,
    source="The TensorFlow team: Flowers, 2019 (flower_photos, CC BY 2.0)",
    tfrecords=True,
)


def examples(request: DataRequest) -> Source:
    """Reads the class folders of <dataset_dir>[/<split>]."""
    return requested_folders(request)
