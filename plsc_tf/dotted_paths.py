"""Loads users' objects by dotted path, "package.module.Name" or "module:Name"."""

import importlib

from plsc_tf.requirements import did_you_mean, require


def split(path):
    """Returns (module, name); one of them is "" if `path` isn't a dotted path."""
    module_name, _, name = path.replace(":", ".").rpartition(".")
    return module_name, name


def load_module(name, what, path=""):
    """Imports a module by name.

    Args:
        name: "package.module".
        what: description of the object for error messages.
        path: the path that the user gave, or "" to show `name`.

    Raises:
        ImportError: the module does not exist.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # The user's module exists, but a package that it imports is missing.
        raise ImportError(
            f"Python cannot find the module {error.name!r} of the {what} "
            f"{path or name!r}. Run from its folder, or add that to PYTHONPATH."
        ) from error


def load(path, what):
    """Loads the object at a dotted path.

    Args:
        path: module and name; see `split`.
        what: description of the object for error messages.

    Raises:
        ImportError: the module or the name does not exist; the message says which.
    """
    module_name, name = split(path)
    module = load_module(module_name or name, what, path)
    if not hasattr(module, name):
        rule = f"The {what} {path!r} was defined in another script"
        advice = (
            "Pass it in Python again, or move its code to a module for both scripts"
        )
        require(module_name != "__main__", rule, advice, raises=ImportError)
        hint = did_you_mean(name, dir(module), before=path.removesuffix(name))
        raise ImportError(f"{module.__name__} has no {name!r}.{hint}")
    return getattr(module, name)
