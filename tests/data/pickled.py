"""What pickles may hold besides plain data."""


class Call:
    """Is pickled as the call of a function."""

    def __init__(self, function, *arguments):
        self._call = function, arguments

    def __reduce__(self):
        return self._call
