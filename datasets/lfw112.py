"""Labeled Faces in the Wild at 112x112: train/ and val/ of different people.

8,293 images; the center of each photograph, not aligned by landmarks, and not the
View-2 protocol: published LFW figures do not transfer.
Huang, Ramesh, Berg, Learned-Miller: Labeled Faces in the Wild, University of
Massachusetts, Technical report 07-49, 2007.
"""

from plsc_tf.data import paths
from plsc_tf.data.pairs import Pairs, load_pairs
from plsc_tf.data.readers import layouts
from plsc_tf.data.request import DataRequest, DatasetInfo

INFO = DatasetInfo(num_classes=3_689, tfrecords=True)
layout = layouts.images_in_folders


def pairs(request: DataRequest, target: str = "pairs_val") -> Pairs | None:
    """Returns the 1,200 pairs of pairs_val.txt over the people in val/."""
    if target not in ("pairs_val", "lfw112", "val"):
        return None
    root = paths.require_folder(request.dataset_dir)
    return load_pairs(
        paths.join(root, "pairs_val.txt"), paths.join(root, "val"), name=target
    )
