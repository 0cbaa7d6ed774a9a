"""A process that is all there is, with the face of a `Group` of workers."""


class SingleWorker:
    """One worker without others; see `plsc_tf.parallel.group.Group`."""

    index = 0
    size = 1
    is_chief = True
    lost = None

    def gather(self, name, value, timeout_s=None):
        """The values of all workers: `[value]`."""
        del name, timeout_s
        return [value]

    def tell(self, activity):
        """Nobody listens."""
