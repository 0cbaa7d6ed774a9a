"""Protocols, saved embeddings, the evaluation card (`python -m plsc_tf.evaluate`)."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Scoring(OptionGroup, saved=False):
    """Protocols, saved embeddings, the evaluation card."""

    pair_lists: tuple[str, ...] = option(
        (),
        "files of 'left right 1' or 'left right 0' lines to verify; left and right "
        "are images below picture_dir or names of saved embeddings",
    )
    template_dirs: tuple[str, ...] = option(
        (),
        "folders of template protocols such as IJB-B and IJB-C: meta/ with "
        "*_face_tid_mid.txt and *_template_pair_label.txt, images in loose_crop/",
    )
    tinyface_dir: str = option(
        "",
        "TinyFace's Testing_Set, with Gallery_Match/, Gallery_Distractor/ and Probe/, "
        "or a folder of its aligned images in the same three: rank-1, 5 and 20",
    )
    detector_scores: bool = option(
        True,
        "weight the images of a template with the detector's scores in "
        "*_name_5pts_score.txt, if that exists (insightface's D1)",
        applies="template_dirs",
    )
    gallery: str = option(
        "", "file of 'name identity' lines: known identities; needs probes"
    )
    probes: str = option(
        "",
        "file of 'name identity' lines to search for; identities that the gallery "
        "lacks make the search an open-set one",
    )
    picture_dir: str = option(
        "",
        "folder of the names in pair_lists, gallery and probes; empty: the folder of "
        "the list",
        applies="pair_lists or gallery",
    )
    embeddings: str = option(
        "",
        "evaluate saved embeddings, without a model: a .npy file [n, embedding_size]",
    )
    embedding_names: str = option(
        "",
        "file with the name of each row of the saved embeddings, one per line; empty: "
        "the .npy file's name with .txt, or row numbers if that is missing",
        applies="embeddings",
    )
    plot_dir: str = option(
        "", "write ROC, score histogram and CMC of each set into this folder, as SVG"
    )
    card_dir: str = option(
        "", "write the evaluation card into this folder: card.json and card.html"
    )
    card_far: float = option(
        1e-3,
        "false accept rate that the threshold is calibrated at",
        within="(0, 1)",
        applies="card_dir",
    )
    card_duplicates: bool = option(
        True,
        "look for images of the verification sets in the training set, by bytes and "
        "by pixels; reads all of it, 0.3 ms per image and core",
        applies="card_dir and no embeddings",
    )
    bootstrap_samples: int = option(
        1000,
        "draws of identities for the card's confidence intervals; 0: no intervals",
        lower=0,
        applies="card_dir",
    )

    @property
    def has_lists(self) -> bool:
        """Whether anything besides verification sets is to be compared."""
        listed = (self.pair_lists, self.template_dirs, self.tinyface_dir, self.gallery)
        return any(listed)
