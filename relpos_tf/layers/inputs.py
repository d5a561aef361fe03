"""The inputs of a layer, as Keras converts them."""

from keras.src import backend  # nothing public reads and sets a tensor's mask


def converted_once(layer, args, kwargs):
    """Converts a tensor that is several arguments of a call, once for all.

    Keras converts each argument by itself. Where it casts, as in mixed
    precision, it makes two tensors of one, and a layer could not see that it
    attends to its own input. Keras leaves the results as they are.

    Args:
        layer: `keras.layers.Layer`.
        args: tuple of the call's positional arguments.
        kwargs: dict of its named arguments.

    Returns:
        The same two, with equal objects where equal ones were.
    """
    given = [x for x in (*args, *kwargs.values()) if hasattr(x, "dtype")]
    if len({id(x) for x in given}) == len(given):
        return args, kwargs
    converted = {id(x): _converted(layer, x) for x in given}
    return (
        tuple(converted.get(id(x), x) for x in args),
        {name: converted.get(id(x), x) for name, x in kwargs.items()},
    )


def _converted(layer, x):
    """Returns what Keras makes of an argument, with the mask of it."""
    mask = backend.get_keras_mask(x)
    y = layer.dtype_policy.convert_input(x, layer.autocast, layer.input_dtype)
    if mask is not None:
        backend.set_keras_mask(y, mask)
    return y
