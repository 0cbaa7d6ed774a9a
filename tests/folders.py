"""What a folder holds."""

import pathlib


def contents(folder):
    """`{name below the folder: bytes}` of all its files, sorted by name."""
    folder = pathlib.Path(folder)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
