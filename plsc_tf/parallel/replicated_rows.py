"""Arrays `[num_rows, ...]` that every replica holds."""

import tensorflow as tf

from plsc_tf.parallel.held_rows import HeldRows
from plsc_tf.parallel.rows import OVERWRITING


class ReplicatedRows:
    """`[num_rows, ...]`, whole on every replica; used like `ShardedRows`."""

    sparse = False

    def __init__(self, variable):
        self.variable = variable
        self.shape = tuple(variable.shape)
        self.dtype = variable.dtype
        self.tile_rows = self.shape[0]

    def local(self):
        """The one tile of the calling replica."""
        return [tf.convert_to_tensor(self.variable)]

    def here(self):
        """The rows of this process: all of them."""
        return 0, self.shape[0]

    def read(self, low, high):
        """The rows `[low, high)` as numpy."""
        return self.variable.value[low:high].numpy()

    def pieces(self, low, high):
        """The rows `[low, high)` as numpy arrays of bounded size, in order."""
        return self.held().pieces(low, high)

    def release(self, low, high):
        """Nothing is held; see `HeldRows`."""

    def held(self):
        """These rows as they are now, whatever happens to the variable."""
        value = tf.convert_to_tensor(self.variable.value)

        def places(low, high):
            yield 0, 0, low, high, low

        return HeldRows(self.shape, self.dtype, {0: [value]}, places, self.here())

    def spans(self, low, high, most):
        """Cuts the rows `[low, high)` into spans of at most `most` rows."""
        for begin in range(low, high, most):
            yield begin, min(begin + most, high)

    def write(self, low, rows):
        """Overwrites the rows that start at `low`, `[n, ...]`."""
        value = self.variable.value
        with OVERWRITING:
            head, tail = value[:low], value[low + len(rows) :]
            value.assign(tf.concat([head, tf.cast(rows, value.dtype), tail], axis=0))
