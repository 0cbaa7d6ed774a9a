"""Five kinds of flowers, from class folders or from TFRecords."""

from plsc_tf.data.readers.by_request import requested_folders, requested_records
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import Source

INFO = DatasetInfo(
    description="photographs of daisies, dandelions, roses, sunflowers and tulips",
    num_classes=5,
    num_examples=3_670,
    source="The TensorFlow team: Flowers, 2019 (flower_photos, CC BY 2.0)",
)


def examples(request: DataRequest) -> Source:
    """Reads class folders, [<dataset_dir>/train], or the TFRecords of train_files."""
    if request.train_files:
        return requested_records(request, "flowers", INFO)
    return requested_folders(request)
