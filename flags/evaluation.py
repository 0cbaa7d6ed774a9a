"""Defines the options for verification sets and other evaluations."""

from plsc_tf.flags.option import OptionGroup, option


class Evaluation(OptionGroup):
    """Options for verification sets."""

    val_targets: tuple[str, ...] = option(
        ("lfw",),
        "verification sets: <dataset_dir>/<name>.bin, the path of a .bin file or "
        "pairs.txt, or a name defined by the data set (PLSC)",
    )
    test_batch_size: int = option(
        120, "images per step in verification (PLSC)", lower=1, applies="with_test"
    )
    with_test: bool = option(True, "verify during training, after each epoch (PLSC)")
    eval_every_n_steps: int = option(
        0,
        "steps between two verifications; 0: after each epoch (PLSC set_test_period)",
        lower=0,
        applies="with_test and val_targets",
    )
    raw_pixel_baseline: bool = option(
        False,
        "also print the accuracy of a comparison of raw pixels",
        applies="with_test and val_targets",
    )


class Scoring(OptionGroup, saved=False):
    """Options for protocols, saved embeddings and the evaluation card."""

    pair_lists: tuple[str, ...] = option(
        (),
        "files with lines 'left right 1' (or 0), of names of images or saved "
        "embeddings",
    )
    template_dirs: tuple[str, ...] = option(
        (),
        "folders of template protocols such as IJB-C, which contain meta/ and "
        "loose_crop/",
    )
    tinyface_dir: str = option(
        "", "folder Testing_Set of TinyFace, or of its aligned images"
    )
    detector_scores: bool = option(
        True,
        "weight the images of a template by the detector's scores, if they exist",
        applies="template_dirs",
    )
    gallery: str = option(
        "", "file with a line 'name identity' for each known image; needs probes"
    )
    probes: str = option(
        "", "file with a line 'name identity' for each image to identify"
    )
    picture_dir: str = option(
        "",
        "folder of the images in the lists; empty: the folder of the list",
        applies="pair_lists or gallery",
    )
    embeddings: str = option(
        "", "file of saved embeddings to evaluate, .npy [n, embedding_size]"
    )
    embedding_names: str = option(
        "",
        "file with the name of each row; empty: the path of embeddings with .txt for "
        ".npy",
        applies="embeddings",
    )
    plot_dir: str = option(
        "", "folder for SVG plots of ROC, score histogram and CMC of each set"
    )
    card_dir: str = option("", "folder for card.json and card.html")
    card_far: float = option(
        1e-3,
        "false accept rate at which to calibrate the threshold",
        within="(0, 1)",
        applies="card_dir",
    )
    card_duplicates: bool = option(
        True,
        "search the training set for images of the verification sets; reads all of it",
        applies="card_dir and no embeddings",
    )
    bootstrap_samples: int = option(
        1000,
        "number of random draws of identities for the confidence intervals; 0: no "
        "intervals",
        lower=0,
        applies="card_dir",
    )

    REFUSED = {
        "gallery and no probes or probes and no gallery": "gallery and probes go "
        "together: the known people, and the images to identify.",
        "embeddings and no pair_lists and no template_dirs and no tinyface_dir and no "
        "gallery": "Saved embeddings are compared by pair_lists, template_dirs, "
        "tinyface_dir, or gallery and probes.",
        "embedding_names and no embeddings": "embedding_names names the rows of "
        "embeddings.",
    }

    @property
    def has_lists(self) -> bool:
        """True if there is something to evaluate besides verification sets."""
        listed = (self.pair_lists, self.template_dirs, self.tinyface_dir, self.gallery)
        return any(listed)
