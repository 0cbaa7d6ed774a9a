"""Did you mean ...? The names nearest to one that is unknown."""

import difflib


def did_you_mean(name, names, *, most=1, before=""):
    """Returns ` Did you mean 'x' or 'y'?` for the nearest of `names`, or nothing.

    Args:
        name: what was written.
        names: what it may stand for.
        most: how many to name.
        before: what to put before each, such as its module.
    """
    words = [f"'{before}{word}'" for word in nearest(name, names, most)]
    return f" Did you mean {' or '.join(words)}?" if words else ""


def nearest(name, names, most=1):
    """Returns the names nearest to `name` in spelling, the best first.

    Args:
        name: what was written.
        names: what it may stand for.
        most: how many to return.
    """
    by_plain = {plain(other): other for other in sorted(names, reverse=True)}
    matches = difflib.get_close_matches(plain(name), by_plain, n=most, cutoff=0.65)
    return [by_plain[match] for match in matches]


def plain(name):
    """Returns a name in lower case, with underscores."""
    return name.lower().replace("-", "_")
