"""tensor2tensor's Transformer in NumPy, on variables by their names there.

What version 1.15.7 computes outside training, in float64, from the variables
of a checkpoint and a dict of hparams. It shares no code with the package, nor
with `oracles.py`, which knows the package's own names.

Shapes: B batch, S source length, T target length, L either, V vocabulary,
F features, H heads, Q queries, K keys, D depth per head, R rows of a table.
"""

import re

import numpy as np

_BODY = "transformer/body"


def encode(variables, hparams, inputs, target_space_id=0):
    """Returns the output of the encoder, norm included.

    Args:
        variables: dict of arrays by tensor2tensor's name.
        hparams: dict of tensor2tensor's hparams.
        inputs: `[B, S]` ids, padded with 0.
        target_space_id: int. The row of the target-space table, if the hparams
            ask for one.

    Returns:
        A float64 `[B, S, F]` array.
    """
    variables = _doubles(variables, hparams)
    kind = "shared" if _is_shared(hparams) else "input_emb"
    x = _embed(variables, hparams, kind, inputs)  # [B, S, F]
    if hparams["use_target_space_embedding"]:
        # At padding too: which positions are padding was found out before.
        x = (
            x
            + variables[f"{_BODY}/target_space_embedding/kernel"][
                target_space_id
            ]
        )
    x = _add_positions(variables, hparams, x, "inputs")
    bias = _padding_bias(inputs)
    # The pad remover: padding goes around the feed-forward network.
    is_fed = np.ones_like(inputs)
    if hparams["use_pad_remover"]:
        is_fed = inputs != 0
    for i in range(hparams["num_encoder_layers"] or _layers(hparams)):
        scope = f"{_BODY}/encoder/layer_{i}"
        x = _self_attention(variables, hparams, scope, x, bias)
        x = _feed_forward(variables, hparams, scope, x, is_fed[..., None])
    return _before(variables, hparams, f"{_BODY}/encoder", x)


def logits(variables, hparams, inputs, targets, target_space_id=0):
    """Returns the logits of every target, given those before it.

    Args:
        variables: dict of arrays by tensor2tensor's name.
        hparams: dict of tensor2tensor's hparams.
        inputs: `[B, S]` ids, padded with 0.
        targets: `[B, T]` ids, padded with 0, not shifted.
        target_space_id: int. See `encode`.

    Returns:
        A float64 `[B, T, V]` array.
    """
    memory = encode(variables, hparams, inputs, target_space_id)
    variables = _doubles(variables, hparams)
    kind = "shared" if _is_shared(hparams) else "target_emb"
    x = _embed(variables, hparams, kind, targets)
    # Shifted after the embedding: a zero precedes the first position.
    x = np.concatenate([np.zeros_like(x[:, :1]), x[:, :-1]], axis=1)
    x = _add_positions(variables, hparams, x, "targets")
    length = x.shape[1]
    causal = np.where(np.tri(length, dtype=bool), 0.0, -1e9)  # [T, T]
    for i in range(hparams["num_decoder_layers"] or _layers(hparams)):
        scope = f"{_BODY}/decoder/layer_{i}"
        x = _self_attention(variables, hparams, scope, x, causal)
        part = f"{scope}/encdec_attention"
        y = _attention(
            *(variables, hparams, part),
            _before(variables, hparams, part, x),
            memory,
            _padding_bias(inputs),
            is_relative=False,
        )
        x = _after(variables, hparams, part, x, y)
        x = _feed_forward(variables, hparams, scope, x)
    x = _before(variables, hparams, f"{_BODY}/decoder", x)
    kind = "softmax"
    if hparams["shared_embedding_and_softmax_weights"]:
        kind = "shared"
    return x @ _table(variables, hparams, kind).T


def _doubles(variables, hparams):
    expected = {"ffn_layer": "dense_relu_dense", "norm_type": "layer"}
    for name, value in expected.items():
        assert hparams[name] == value, (name, hparams[name])
    return {
        name: np.asarray(value, np.float64) for name, value in variables.items()
    }


def _layers(hparams):
    return hparams["num_hidden_layers"]


def _is_shared(hparams):
    return (
        hparams["shared_embedding_and_softmax_weights"]
        or hparams["shared_embedding"]
    )


def _table(variables, hparams, kind):
    """Joins the shards of a table: `[V, F]`."""
    pattern = rf"transformer/symbol_modality_\d+_\d+/{kind}/weights_(\d+)"
    shards = {
        int(match[1]): value
        for name, value in variables.items()
        if (match := re.fullmatch(pattern, name))
    }
    numbers = list(range(hparams["symbol_modality_num_shards"]))
    assert sorted(shards) == numbers, (kind, sorted(shards))
    return np.concatenate([shards[number] for number in numbers])


def _embed(variables, hparams, kind, ids):
    x = _table(variables, hparams, kind)[ids]  # [B, L, F]
    if hparams["multiply_embedding_mode"] == "sqrt_depth":
        x = x * hparams["hidden_size"] ** 0.5
    return x * (ids != 0)[..., None]


def _add_positions(variables, hparams, x, side):
    length, size = x.shape[1:]
    if hparams["pos"] == "timing":
        return x + _timing_signal(length, size)
    if hparams["pos"] == "emb":
        table = variables[f"{_BODY}/{side}_positional_embedding"]
        rows = np.zeros([length, size])  # nothing beyond the table's end
        rows[: len(table)] = table[:length]
        return x + rows
    assert not hparams["pos"] or hparams["pos"] == "none", hparams["pos"]
    return x


def _timing_signal(length, size):
    """Sines of falling frequencies, their cosines, 0 if one is left over."""
    number = size // 2
    increment = np.log(1e4) / max(number - 1, 1)
    frequencies = np.exp(-increment * np.arange(number))
    angles = np.arange(length)[:, None] * frequencies  # [L, F // 2]
    signal = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return np.pad(signal, [[0, 0], [0, size % 2]])


def _padding_bias(inputs):
    return np.where(inputs == 0, -1e9, 0.0)[:, None, None, :]  # [B, 1, 1, S]


def _norm(variables, hparams, scope, x):
    scope = f"{scope}/layer_norm/layer_norm"
    x = x - x.mean(-1, keepdims=True)
    variance = np.mean(x**2, -1, keepdims=True)
    x = x / np.sqrt(variance + hparams["norm_epsilon"])
    return x * variables[f"{scope}_scale"] + variables[f"{scope}_bias"]


def _before(variables, hparams, scope, x):
    """What stands before a sublayer, and behind the last of a stack."""
    sequence = hparams["layer_preprocess_sequence"]
    return _sequence(
        variables, hparams, f"{scope}/layer_prepostprocess", sequence, None, x
    )


def _after(variables, hparams, scope, x, y):
    sequence = hparams["layer_postprocess_sequence"]
    return _sequence(
        variables, hparams, f"{scope}/layer_postprocess", sequence, x, y
    )


def _sequence(variables, hparams, scope, sequence, previous, x):
    """Applies a sequence of the letters a (add), n (norm), d (dropout)."""
    for letter in sequence if sequence != "none" else "":
        if letter == "a":
            x = x + previous
        elif letter == "n":
            x = _norm(variables, hparams, scope, x)
        else:
            assert letter == "d", sequence  # nothing is dropped here
    return x


def _self_attention(variables, hparams, scope, x, bias):
    scope = f"{scope}/self_attention"
    kinds = {"dot_product": False, "dot_product_relative": True}
    y = _before(variables, hparams, scope, x)
    y = _attention(
        *(variables, hparams, scope, y, y, bias),
        is_relative=kinds[hparams["self_attention_type"]],
    )
    return _after(variables, hparams, scope, x, y)


def _attention(variables, hparams, scope, queries, memory, bias, is_relative):
    scope = f"{scope}/multihead_attention"

    def heads(name, x):
        x = x @ variables[f"{scope}/{name}/kernel"]
        x = x.reshape(*x.shape[:2], hparams["num_heads"], -1)
        return x.transpose(0, 2, 1, 3)  # [B, H, L, D]

    q, k, v = heads("q", queries), heads("k", memory), heads("v", memory)
    q = q * q.shape[-1] ** -0.5
    scores = np.einsum("bhqd,bhkd->bhqk", q, k)
    if is_relative:
        by_key, by_value = _relative_vectors(variables, hparams, scope, q, k)
        scores = scores + np.einsum("bhqd,qkd->bhqk", q, by_key)
    scores = scores + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)  # [B, H, Q, K]
    output = np.einsum("bhqk,bhkd->bhqd", weights, v)
    if is_relative:
        output = output + np.einsum("bhqk,qkd->bhqd", weights, by_value)
    output = output.transpose(0, 2, 1, 3)  # [B, Q, H, D]
    output = output.reshape(*output.shape[:2], -1)
    return output @ variables[f"{scope}/output_transform/kernel"]


def _relative_vectors(variables, hparams, scope, q, k):
    """Returns a `[Q, K, D]` vector of each pair, for keys and for values."""
    scope = f"{scope}/dot_product_attention_relative/relative_positions"
    limit = hparams["max_relative_position"]
    distances = np.arange(k.shape[2]) - np.arange(q.shape[2])[:, None]
    rows = np.minimum(np.maximum(distances, -limit), limit) + limit
    tables = [
        variables[f"{scope}_{side}/embeddings"] for side in ("keys", "values")
    ]  # [R, D] each
    assert {len(table) for table in tables} == {2 * limit + 1}
    return [table[rows] for table in tables]


def _feed_forward(variables, hparams, scope, x, is_fed=1):
    scope = f"{scope}/ffn"
    y = _before(variables, hparams, scope, x)
    for part in ("conv1", "conv2"):
        kernel = variables[f"{scope}/{part}/kernel"]
        y = y @ kernel + variables[f"{scope}/{part}/bias"]
        if part == "conv1":
            y = np.maximum(y, 0.0)
    return _after(variables, hparams, scope, x, y * is_fed)
