"""Builds the `DataRequest` that the options of the data describe."""

from plsc_tf.data.readers.layouts import DataRequest


def data_request(settings, split, **fields) -> DataRequest:
    """Returns the request for a split of the data set.

    Args:
        settings: the `Settings`.
        split: "train", "val" or "test".
        **fields: fields of `DataRequest` whose values are not simply those of the
            options: num_classes, num_examples, held_back, and train_files if they
            differ.
    """
    names = ("dataset_dir", "train_files", "labels_offset", "min_images_per_class")
    known = {name: getattr(settings.dataset, name) for name in names}
    known["image_size"] = settings.preprocessing.image_size
    return DataRequest(**known | fields, split=split, seed=settings.training.seed)
