"""Turns an attention layer of the Transformer into a Keras layer, and back.

Both compute the same for queries and keys of the same number. Otherwise they
count distances differently: the queries of `TransformerAttention` are the last
keys, those of `RelativeMultiHeadAttention` the first ones.

| `TransformerAttention` | `RelativeMultiHeadAttention` |
|---|---|
| `q/kernel`, `k/kernel`, `v/kernel`: `[F, N * D]` | `query/kernel` and so on: `[F, N, D]` |
| `output_transform/kernel`: `[N * D, F]` | `attention_output/kernel`: `[N, D, F]` |
| `relative_positions_keys`, `relative_positions_values` | the same |

Shapes: N heads, D depth per head, F = N * D features.
"""  # noqa: E501

from relpos_tf import errors
from relpos_tf.layers import attention
from relpos_tf.layers import keras_attention
from relpos_tf.layers.positions import shaw
from relpos_tf.layers.positions import tables

_KERNELS = {
    "q": "query_dense",
    "k": "key_dense",
    "v": "value_dense",
    "output_transform": "output_dense",
}


def to_keras(layer):
    """Returns a `RelativeMultiHeadAttention` with copies of the weights.

    The result clips at one distance on both sides: the longer one of a `Shaw`
    with two, with copies of the last vector of the shorter side.

    Args:
        layer: A built `TransformerAttention` of `hidden_size` input features,
            without `positions` or with `Shaw` alone.

    Raises:
        UserError: other positions or input features, or a layer that was not
            built.

    Example:

    >>> import tensorflow as tf
    >>> x = tf.random.normal([3, 5, 8])
    >>> layer = attention.TransformerAttention(8, 2, positions=[shaw.Shaw(4)])
    >>> y = layer(x)
    >>> bool(tf.reduce_max(tf.abs(to_keras(layer)(x, x) - y)) < 1e-6)
    True
    """
    _check_built(layer)
    schemes = layer.positions
    if len(schemes) > 1 or any(type(one) is not shaw.Shaw for one in schemes):
        raise errors.UserError(
            "`positions` of the layer must be empty or one Shaw. Received: "
            f"{', '.join(one.name for one in schemes)}."
        )
    size = layer.hidden_size
    features = {
        "queries": layer.q.kernel.shape[0],
        "memory": layer.k.kernel.shape[0],
    }
    if set(features.values()) != {size}:
        raise errors.UserError(
            f"The layer must have inputs of hidden_size = {size} features. "
            f"Received: {features}."
        )
    relative = {"add_relative_to_keys": False, "add_relative_to_values": False}
    left = None
    for one in schemes:
        left = one.left
        relative = {
            "max_relative_position": max(one.left, one.right),
            "add_relative_to_keys": one.add_to_keys,
            "add_relative_to_values": one.add_to_values,
            "heads_share_relative_embedding": one.heads_share,
            "implementation": one.implementation,
        }
    result = keras_attention.RelativeMultiHeadAttention(
        layer.num_heads,
        layer.depth,
        dropout=layer.dropout,
        use_bias=False,
        name=layer.name,
        dtype=layer.dtype_policy,
        **relative,
    )
    shape = None, None, size
    result.build(shape, shape)
    _copy(layer, result, left)
    return result


def to_transformer(layer):
    """Returns a `TransformerAttention` with copies of the weights.

    Args:
        layer: A built `RelativeMultiHeadAttention` with `use_bias=False`,
            inputs of rank 3 and one number of features, `num_heads * key_dim`.
            It must not be quantized.

    Raises:
        UserError: a layer that `TransformerAttention` cannot stand for, or
            that was not built.
    """
    _check_built(layer)
    config, size = layer.get_config(), layer.num_heads * layer.key_dim
    sizes = {
        "value_dim": layer.value_dim * layer.num_heads,
        "output_shape": (config["output_shape"] or (size,))[-1],
        "query": layer.query_dense.kernel.shape[0],
        "key": layer.key_dense.kernel.shape[0],
        "value": layer.value_dense.kernel.shape[0],
    }
    others = {
        name: config[name]
        for name in ("use_bias", "use_gate", "sliding_window")
        if config.get(name)
    }
    others |= {name: n for name, n in sizes.items() if n != size}
    if layer._rank != 3:
        others["rank"] = layer._rank
    for name in _KERNELS.values():
        if mode := getattr(layer, name).quantization_mode:
            others["quantization"] = mode
    if others:
        raise errors.UserError(
            "The layer must have no bias, gate, window or quantization, inputs "
            f"of rank 3, and num_heads * key_dim = {size} features. Received: "
            f"{others}."
        )
    positions = []
    if layer.add_relative_to_keys or layer.add_relative_to_values:
        implementation = layer.implementation
        scheme = shaw.Shaw(
            layer.max_relative_position,
            add_to_keys=layer.add_relative_to_keys,
            add_to_values=layer.add_relative_to_values,
            heads_share=layer.heads_share_relative_embedding,
            implementation="auto"
            if implementation == "ops"
            else implementation,
        )
        positions.append(scheme)
    result = attention.TransformerAttention(
        size,
        layer.num_heads,
        positions=positions,
        dropout=layer.dropout,
        name=layer.name,
        dtype=layer.dtype_policy,
    )
    result.build((None, None, size))
    _copy(layer, result)
    return result


def _check_built(layer):
    if not layer.built:
        raise errors.UserError(
            "The layer must be built, by a call for example. "
            f"Received: {layer}."
        )


def _copy(source, target, left=None):
    """Copies kernels, whose numbers are in one order, and tables.

    `left` is the row of distance 0 in the tables, if it is not the middle one.
    """
    for ours, keras_name in _KERNELS.items():
        pair = [
            getattr(layer, ours if hasattr(layer, ours) else keras_name).kernel
            for layer in (source, target)
        ]
        pair[1].assign(pair[0].numpy().reshape(pair[1].shape))
    targets = {weight.name: weight for weight in _tables(target)}
    for weight in _tables(source):
        table = weight.numpy()
        if left is not None:
            table = tables.symmetric(table, left)
        targets[weight.name].assign(table)


def _tables(layer):
    return [w for w in layer.weights if w.name.startswith("relative_positions")]
