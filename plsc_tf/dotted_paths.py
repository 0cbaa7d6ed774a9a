"""Objects of a user's code by dotted path, "package.module.Name" or "module:Name"."""

import importlib

from plsc_tf.hints import did_you_mean


def split(path):
    """(module, name) of a path; one of them is "" where it is no dotted path."""
    module_name, _, name = path.replace(":", ".").rpartition(".")
    return module_name, name


def load_module(name, what, path=""):
    """The module of this name.

    Args:
        name: "package.module".
        what: it is, for messages.
        path: that was given; "" for the name itself.

    Raises:
        ImportError: there is no such module.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the user's module exists and itself misses a package
        raise ImportError(
            f"No module {error.name!r} on the path for the {what} {path or name!r}. "
            "Run from the folder that holds it, or add that folder to PYTHONPATH."
        ) from error


def load(path, what, separator="."):
    """The object at a dotted path.

    Args:
        path: of both parts, see `split`.
        what: it is, for messages.
        separator: between module and name in hints.

    Raises:
        ImportError: it leads nowhere; says where it stopped.
    """
    module_name, name = split(path)
    module = load_module(module_name, what, path)
    if not hasattr(module, name):
        if module_name == "__main__":
            raise ImportError(
                f"The {what} {path!r} was defined in another script, which is not "
                f"here. Give the {what} again in Python, as that script did, or put "
                "its code into a module that both can import."
            )
        hint = did_you_mean(name, dir(module), before=f"{module_name}{separator}")
        raise ImportError(f"{module_name} has no {name!r}.{hint}")
    return getattr(module, name)
