"""Locks that the driver holds for the tests, by name."""

from plsc_tf.storage.writer_lock import WriterLock

LOCKS = {}


def take(name, folder, options):
    """Takes the lock of a folder."""
    LOCKS[name] = WriterLock("Go elsewhere.", renew_s=0.5, **options)
    LOCKS[name].acquire(folder)


def check(name):
    """Makes sure that it is held."""
    LOCKS[name].check()


def give_up(name):
    """Gives it up."""
    LOCKS.pop(name).release()


def take_and_sleep(name, folder):
    """Takes it as a machine that is cut off from then on."""
    LOCKS[name] = WriterLock(machine="a", renew_s=3600, lease_s=2)
    LOCKS[name].acquire(folder)
