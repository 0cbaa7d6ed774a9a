"""Protocols of `python -m plsc_tf.evaluate` besides verification sets; its outputs."""

import dataclasses

from plsc_tf.flags.option import OptionGroup, option


@dataclasses.dataclass(frozen=True)
class Scoring(OptionGroup):
    """Protocols, saved embeddings, the evaluation card."""

    pair_lists: tuple[str, ...] = option(
        (),
        "files of 'left right 1' or 'left right 0' lines to verify; left and right "
        "are pictures below picture_dir or names of saved embeddings",
        saved=False,
    )
    template_dirs: tuple[str, ...] = option(
        (),
        "folders of template protocols as IJB-B and IJB-C have them: meta/ with "
        "*_face_tid_mid.txt and *_template_pair_label.txt, pictures in loose_crop/",
        saved=False,
    )
    tinyface_dir: str = option(
        "",
        "TinyFace's Testing_Set, with Gallery_Match/, Gallery_Distractor/ and Probe/, "
        "or a folder of its aligned pictures in the same three: rank-1, 5 and 20",
        saved=False,
    )
    detector_scores: bool = option(
        True,
        "weight the pictures of a template with the detector's scores in "
        "*_name_5pts_score.txt, where it is there (insightface's D1)",
        saved=False,
        applies="template_dirs",
    )
    gallery: str = option(
        "",
        "file of 'name identity' lines: who can be identified; goes with probes",
        saved=False,
    )
    probes: str = option(
        "",
        "file of 'name identity' lines: who is looked for; identities that the gallery "
        "lacks make the search an open-set one",
        saved=False,
    )
    picture_dir: str = option(
        "",
        "folder that the names in pair_lists, gallery and probes are below; empty: "
        "the folder of the list",
        saved=False,
        applies="pair_lists or gallery",
    )
    embeddings: str = option(
        "",
        "evaluate saved embeddings, without a model: a .npy file [n, embedding_size]",
        saved=False,
    )
    embedding_names: str = option(
        "",
        "file with the name of each row of the saved embeddings, one per line; empty: "
        "the .npy file's name with .txt, or row numbers where there is none",
        saved=False,
        applies="embeddings",
    )
    plot_dir: str = option(
        "",
        "write ROC, score histogram and CMC of each set into this folder, as SVG",
        saved=False,
    )
    card_dir: str = option(
        "",
        "write the evaluation card into this folder: card.json and card.html",
        saved=False,
    )
    card_far: float = option(
        1e-3,
        "false accept rate that the threshold is calibrated at",
        lower=0.0,
        upper=1.0,
        open_ends="lower upper",
        saved=False,
        applies="card_dir",
    )
    card_duplicates: bool = option(
        True,
        "look for pictures of the verification sets in the training set, by bytes and "
        "by pixels; reads all of it, 0.3 ms per picture and core",
        saved=False,
        applies="card_dir and no embeddings",
    )
    bootstrap_samples: int = option(
        1000,
        "draws of identities behind the card's confidence intervals; 0: no intervals",
        lower=0,
        saved=False,
        applies="card_dir",
    )

    @property
    def has_lists(self):
        """Whether anything but verification sets is to be compared."""
        listed = (self.pair_lists, self.template_dirs, self.tinyface_dir, self.gallery)
        return any(listed)
