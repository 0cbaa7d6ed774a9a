"""The images and the output of `python -m plsc_tf.embed`."""

import dataclasses

from plsc_tf.flags import checks
from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Embedding(OptionGroup, saved=False):
    """From images to a file of embeddings."""

    images: str = option(
        "",
        "a folder, all images below which are embedded, in order of their names; or a "
        "text file with an image on each line, and ten numbers after it if it is to be "
        "aligned",
    )
    image_dir: str = option(
        "", "folder of the names in a list of images; empty: that of the list"
    )
    landmarks: str = option(
        "",
        "align the images: a file of 'image x y x y x y x y x y' lines, the center of "
        "the eye on the left of the image, of the other one, the tip of the nose, the "
        "left and the right corner of the mouth, in pixels",
    )
    output: str = option(
        "",
        "the .npy file to write, float32 [images, embedding_size]; the names go into "
        "the .txt next to it. Nothing is overwritten",
        check=checks.npy_file,
    )
    saved_model: str = option(
        "",
        "use an exported model instead of a checkpoint: the folder of its versions, or "
        "of one of them",
    )
    flip: bool | None = option(
        None,
        "add the embedding of each image's mirror image; None: as verification does, "
        "which mirrors all but digits and letters",
    )
    normalize: bool = option(False, "divide each embedding by its length, at the end")
    embed_batch_size: int = option(128, "images per step, over all replicas", lower=1)
