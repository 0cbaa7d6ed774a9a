"""Old names of `plsc_tf.data.readers.layouts`, which opened their files at once."""

from __future__ import annotations

import functools
import warnings

from plsc_tf.data.readers import layouts

_RENAMED = {
    "requested_base64": "images_in_base64",
    "requested_classes": "ClassFoldersLayout",
    "requested_faces": "faces",
    "requested_folders": "images_in_folders",
    "requested_list": "images_in_list",
    "requested_recordio": "images_in_recordio",
    "requested_records": "records",
}


def __getattr__(name: str):
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = f"plsc_tf.data.readers.layouts.{_RENAMED[name]}"
    warnings.warn(
        f"by_request.{name} is deprecated; use {new} as `layout` of the data set",
        DeprecationWarning,
        stacklevel=2,
    )
    return functools.partial(_opened, getattr(layouts, _RENAMED[name]))


def _opened(layout, *arguments, **options):
    return layout(*arguments, **options).open()
