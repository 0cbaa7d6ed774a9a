"""A detector whose faces tests choose by the width of the photograph."""

import threading

import numpy as np

faces = {}  # {width: points of its faces, `[n, 5, 2]`}; no faces at other widths
seen = []  # number of photographs in each call
opened = threading.Event()  # the detector waits while it is not set
opened.set()


def detect(photos):
    opened.wait(20)
    seen.append(len(photos))
    return [np.reshape(faces.get(one.shape[1], ()), (-1, 5, 2)) for one in photos]
