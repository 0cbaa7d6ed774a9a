"""Paddle's ParamAttr for the head, as `Entry.set_distfc_attr` takes it."""

from plsc_tf import initializers

_FIELDS = ("initializer", "learning_rate", "regularizer", "trainable")
_CONSTANT = {"zeros": 0.0, "ones": 1.0}
# The options of the head's weights.
OPTIONS = (
    "head_initial_deviation",
    "head_initializer",
    "head_learning_rate_factor",
    "head_weight_decay",
)


def of_weights(given):
    """Returns the options of the head's weights, `{name: value}`, None if not set.

    Args:
        given: None; a number, the standard deviation; a Keras initializer or its name;
            or a dict or an object with some of ParamAttr's fields: initializer (one of
            those), learning_rate (a factor), regularizer (a factor of weight decay, a
            `keras.regularizers.L2`, or Paddle's L2Decay) and trainable.

    Raises:
        ValueError: it is none of these.
    """
    fields = _fields(given, "param_attr")
    initializer, deviation = fields.get("initializer"), None
    if _is_number(initializer):
        initializer, deviation = None, initializer
    elif initializer is not None:
        initializer = _described(initializer, "param_attr")
    factor = fields.get("learning_rate")
    if fields.get("trainable") is False:
        factor = 0.0
    decay = _decay(fields.get("regularizer"))
    return dict(zip(OPTIONS, (deviation, initializer, factor, decay), strict=True))


def of_biases(given):
    """Returns the initial value of the head's biases, None if not set.

    Args:
        given: None or a number; a constant Keras initializer or its name; or a dict or
            an object with such an initializer. Else biases train as the weights do.

    Raises:
        ValueError: it is none of these.
    """
    fields = _fields(given, "bias_attr")
    initializer = fields.pop("initializer", None)
    if fields.get("regularizer") is not None or fields.get("learning_rate", 1) != 1:
        raise ValueError(
            "bias_attr says how biases begin; they train with the learning rate and "
            f"the regularizer of param_attr. Received: {given!r}."
        )
    if initializer is None or _is_number(initializer):
        return initializer
    name, arguments = initializers.parse(_described(initializer, "bias_attr"))
    if name != "constant" and name not in _CONSTANT:
        raise ValueError(
            "bias_attr must be a number or a constant Keras initializer. "
            f"Received: {given!r}."
        )
    return arguments.get("value", _CONSTANT.get(name))


def _fields(given, name):
    """The fields of a ParamAttr that are set; of anything else, its initializer."""
    if isinstance(given, dict):
        unknown = [key for key in given if key not in (*_FIELDS, "name")]
        if unknown:
            raise ValueError(
                f"{name} may have {', '.join(_FIELDS)}. Received: {unknown[0]!r}."
            )
        return dict(given)
    if any(hasattr(given, field) for field in ("initializer", "learning_rate")):
        return {
            field: getattr(given, field) for field in _FIELDS if hasattr(given, field)
        }
    return {"initializer": given}


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _described(initializer, name):
    try:
        return initializers.described(initializer)
    except ValueError as error:
        raise ValueError(
            f"{name} must be a number, a Keras initializer or its name, or have the "
            f"fields of a ParamAttr. {error}"
        ) from None


def _decay(regularizer):
    """The factor of the weights in the gradient, None if it is not set."""
    if regularizer is None or _is_number(regularizer):
        return regularizer
    coefficient = getattr(regularizer, "_regularization_coeff", None)  # Paddle's
    if coefficient is not None and "L2" in type(regularizer).__name__:
        return float(coefficient)
    if hasattr(regularizer, "l2") and not getattr(regularizer, "l1", 0):
        # Keras's penalty is l2 x sum(w^2), and Paddle's half of it.
        return 2 * float(regularizer.l2)
    raise ValueError(
        "A regularizer of the head must be a factor of weight decay or "
        f"keras.regularizers.L2. Received: {regularizer!r}."
    )
