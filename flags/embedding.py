"""What `python -m plsc_tf.embed` reads and writes."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Embedding(OptionGroup):
    """From pictures to a file of embeddings."""

    images: str = option(
        "",
        "a folder, all pictures below which are embedded, in order of their names; or "
        "a text file with a picture on each line, and ten numbers after it where it is "
        "to be aligned",
        saved=False,
    )
    image_dir: str = option(
        "",
        "folder that the names in a list of images are below; empty: that of the list",
        saved=False,
    )
    landmarks: str = option(
        "",
        "align the pictures: a file of 'picture x y x y x y x y x y' lines, the centre "
        "of the eye on the left of the picture, of the other one, the tip of the nose, "
        "the left and the right corner of the mouth, in pixels",
        saved=False,
    )
    output: str = option(
        "",
        "the .npy file to write, float32 [pictures, embedding_size]; their names go "
        "into the .txt beside it. Nothing is overwritten",
        saved=False,
    )
    saved_model: str = option(
        "",
        "use an exported model instead of a checkpoint: the folder of its versions, or "
        "of one of them",
        saved=False,
    )
    flip: bool | None = option(
        None,
        "add the embedding of each picture's mirror image; None: as verification does, "
        "which mirrors all but digits and letters",
        saved=False,
    )
    normalize: bool = option(
        False, "divide each embedding by its length, at the end", saved=False
    )
    embed_batch_size: int = option(
        128, "pictures per step, over all replicas", lower=1, saved=False
    )

    def __post_init__(self):
        super().__post_init__()
        if self.output and not self.output.endswith(".npy"):
            raise ValueError(
                f"output must end in .npy. Received: output={self.output!r}."
            )
