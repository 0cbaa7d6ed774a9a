"""Suggests similar names for an unknown one ("Did you mean ...?")."""

import difflib
import os


def did_you_mean(name, names, *, most=1, before=""):
    """Returns ` Did you mean 'x' or 'y'?`, or "" if no name is similar.

    Args:
        name: the unknown name.
        names: the known names.
        most: maximum number of names to suggest.
        before: prefix of each suggestion, such as its module.
    """
    words = [f"'{before}{word}'" for word in nearest(name, names, most)]
    return f" Did you mean {' or '.join(words)}?" if words else ""


def similar_name(path):
    """Returns ` Did you mean 'x'?`, x being in the folder of a local path, or ""."""
    folder, name = os.path.split(path)
    folder = folder or "."
    others = os.listdir(folder) if os.path.isdir(folder) else []
    return did_you_mean(name, [other for other in others if other != name])


def nearest(name, names, most=1):
    """Returns the names with the most similar spelling, best match first.

    Args:
        name: the unknown name.
        names: the known names.
        most: maximum number of names to return.
    """
    by_plain = {normalize(other): other for other in sorted(names, reverse=True)}
    matches = difflib.get_close_matches(normalize(name), by_plain, n=most, cutoff=0.65)
    return [by_plain[match] for match in matches]


def normalize(name):
    """Returns a name in lower case, with underscores instead of hyphens."""
    return name.lower().replace("-", "_")
