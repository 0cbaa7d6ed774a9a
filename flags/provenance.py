"""Defines the options for licenses and origins of data and pretrained models."""

from plsc_tf.flags.option import OptionGroup, option


class Provenance(OptionGroup):
    """What is stated about the data, or a model to import, if no DATASET.toml does."""

    license: str = option("", "its license, best an SPDX identifier such as CC-BY-4.0")
    source: str = option("", "where it is from, such as an address")
    sha256: str = option("", "SHA-256 of the file that was downloaded")
    require_license: str = option(
        "any", "refuse what is not known to permit this use", choices="any commercial"
    )
