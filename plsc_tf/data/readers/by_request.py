"""The layouts as data set modules ask for them: by a `DataRequest`."""

from __future__ import annotations

import tensorflow as tf

from plsc_tf.data import paths
from plsc_tf.data.readers.class_folders import class_folders
from plsc_tf.data.readers.image_list import image_list
from plsc_tf.data.readers.tfrecord import tfrecords
from plsc_tf.data.request import DataRequest, DatasetInfo
from plsc_tf.data.source import Source


def requested_records(request: DataRequest, name: str, info: DatasetInfo) -> Source:
    """Reads the TFRecord files that `train_files` names, below dataset_dir or not."""
    return tfrecords(
        paths.expand(request.train_files, request.dataset_dir),
        name=name,
        num_classes=request.num_classes or info.num_classes,
        labels_offset=request.labels_offset,
    )


def requested_list(request: DataRequest) -> Source:
    """Reads label.txt, or label_<split>.txt for another split than train."""
    name = "label.txt" if request.split == "train" else f"label_{request.split}.txt"
    return image_list(
        request.dataset_dir,
        name,
        num_classes=request.num_classes,
        labels_offset=request.labels_offset,
    )


def requested_folders(request: DataRequest) -> Source:
    """Reads <dataset_dir>/<split>, or <dataset_dir> itself for the train split."""
    folder = paths.require_folder(request.dataset_dir)
    below = paths.join(folder, request.split)
    if tf.io.gfile.isdir(below):
        folder = below
    elif request.split != "train":
        raise FileNotFoundError(
            f"dataset_dir {folder!r} has no {request.split}/. {paths.found(folder)} "
            f"Put the images of this split into {below!r}."
        )
    return class_folders(
        folder,
        num_classes=request.num_classes,
        min_images_per_class=request.min_images_per_class,
    )
