"""Only `plsc_tf.storage` calls TensorFlow's file functions.

`tf.io.gfile` answers "absent" when a server is down; `plsc_tf.storage.files` raises.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]


def test_files_are_reached_through_the_storage_layer():
    raw = re.compile(r"\b(tf|tensorflow)\.(compat\.v1\.)?(io\.)?gfile\b|\bfile_io\b")
    sources = [
        path
        for folder in ("plsc_tf", "flags", "datasets")
        for path in (ROOT / folder).rglob("*.py")
        if "storage" not in path.parts
    ]
    assert len(sources) > 100
    assert [str(path) for path in sources if raw.search(path.read_text())] == []
