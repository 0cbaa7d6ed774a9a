"""Defines the options for verification sets and other evaluations."""

from plsc_tf.flags import checks
from plsc_tf.flags.option import Count, OptionGroup, Positive, option, option_if

_during_training = option_if("with_test and val_targets")
_drawn = option_if("card_dir or plot_dir")
_all_pairs = option_if("protocol=all_pairs")
_of_pairs = option_if("pair_lists or template_dirs or protocol or no embeddings")


def _is_part(text):
    number, _, parts = text.partition("/")
    return number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)


class Evaluation(OptionGroup):
    """Options for verification sets."""

    val_targets: tuple[str, ...] = option(
        ("lfw",),
        "<name> for <dataset_dir>/<name>.bin, a path of a .bin file or pairs.txt, or a "
        "name that the data set defines (PLSC)",
    )
    test_batch_size: Positive = option(
        120, "images per step in verification (PLSC)", applies="with_test"
    )
    with_test: bool = option(True, "verify during training, after each epoch (PLSC)")
    eval_every_n_steps: Count = _during_training(
        0, "steps between verifications; 0: each epoch (PLSC test_period)"
    )
    raw_pixel_baseline: bool = _during_training(
        False, "also print the accuracy of comparing raw pixels"
    )


class Scoring(OptionGroup, saved=False):
    """Options for protocols, saved embeddings and the evaluation card."""

    pair_lists: tuple[str, ...] = option(
        (), "files with lines 'left right 1' (or 0): names of images or of embeddings"
    )
    template_dirs: tuple[str, ...] = option(
        (), "folders of protocols such as IJB-C, with meta/ and loose_crop/"
    )
    tinyface_dir: str = option("", "folder Testing_Set of TinyFace, or aligned images")
    groups: str = _of_pairs(
        "",
        "error rates by group: a file with lines 'image group' or 'identity group', "
        "folders (names group/identity/image) or pairs (their lines end with a group)",
    )
    gallery: str = option(
        "", "file with lines 'name identity' of known images; needs probes"
    )
    probes: str = option("", "file with lines 'name identity' of images to identify")
    embeddings: str = option(
        "", "saved embeddings to evaluate, .npy [n, emb_size]; names from the .txt file"
    )
    protocol: str | None = option(
        None, "all_pairs: compare all rows of embeddings", choices="all_pairs"
    )
    identities: str = _all_pairs(
        "", "file with the identity of each row of embeddings, one per line"
    )
    shard: str = _all_pairs(
        "1/1",
        "part of the pairs to count, such as 3/8",
        check=checks.rule("be a part such as 3/8, of 1/8 to 8/8", _is_part),
    )
    plot_dir: str = option("", "folder for the curves of each set, as SVG and PNG")
    card_dir: str = option("", "folder for card.json and card.html")
    compare: tuple[str, ...] = _drawn((), "card.json of other models to show as well")
    reproduce: str = option("", "card.json whose evaluation to repeat, exactly")
    card_far: float = option(
        1e-3,
        "FAR of the threshold",
        within="(0, 1)",
        applies="card_dir or plot_dir or protocol",
    )
    card_duplicates: bool = option(
        True,
        "search the training set for verification images (reads all of it)",
        applies="card_dir and no embeddings",
    )
    calibrate: str | None = _of_pairs(
        None, "calibrate cosines of pairs by this method", choices="logistic isotonic"
    )
    calibration_prior: float = option(
        0.5, "prior probability of a match", within="(0, 1)", applies="calibrate"
    )
    bootstrap_samples: Count = _drawn(1000, "draws for confidence intervals; 0: none")

    REFUSED = {
        "gallery and no probes or probes and no gallery": "Set gallery and probes "
        "together: the known images, and the images to identify.",
        "groups=pairs and no pair_lists": "groups=pairs needs pair_lists, whose lines "
        "end with a group.",
        "embeddings and no pair_lists and no template_dirs and no tinyface_dir and no "
        "gallery and no protocol": "embeddings needs pair_lists, template_dirs, "
        "tinyface_dir, gallery and probes, or protocol=all_pairs.",
        "protocol and no embeddings or protocol and no identities": "all_pairs needs "
        "embeddings, such as faces.npy, and identities, such as ids.txt.",
    }

    @property
    def has_lists(self) -> bool:
        """True if there is something to evaluate besides verification sets."""
        listed = (self.pair_lists, self.template_dirs, self.tinyface_dir, self.gallery)
        return any(listed)
