"""Oracles for the layers and the model: NumPy loops that look like the papers.

They share no code with the package, and take its weights by name.

Shapes: B batch, H heads, Q queries, K keys, D depth per head, F features,
L length.
"""

import types

import numpy as np

# The kinds of Shaw's tables of keys and of values.
TABLES = {
    "shared": ("shared", "shared"),
    "per_head": ("per_head", "per_head"),
    "mixed": ("shared", "per_head"),
    "keys_only": ("shared", None),
    "values_only": (None, "per_head"),
    "neither": (None, None),
}


def distance_vector(table, head, distance, left=None):
    """Section 3.2: the vector of a clipped distance; the first is -k's.

    Args:
        table: None, `[2k+1, D]` or `[H, 2k+1, D]`.
        head: int.
        distance: int.
        left: int: k of keys before the query, if that after it is another.
    """
    if table is None:
        return 0.0
    rows = table[head] if table.ndim == 3 else table
    left = (len(rows) - 1) // 2 if left is None else left
    right = len(rows) - 1 - left
    return rows[max(-left, min(right, distance)) + left]


def softmax(logits):
    powers = np.exp(logits - np.max(logits))
    return powers / powers.sum()


def shaw_attention(
    q,
    k,
    v,
    key_table=None,
    value_table=None,
    *,
    bias=0.0,
    query_start=None,
    left=None,
    heads=1,
):
    """Equations 2 to 4 of Shaw et al., one query and one key at a time.

    Args:
        q: `[B, H, Q, D]`, already scaled.
        k: `[B, H, K, D]`.
        v: `[B, H, K, D]`.
        key_table: None, `[2k+1, D]`, or `[H, 2k+1, D]`.
        value_table: The same.
        bias: Broadcasts to `[B, H, Q, K]`.
        query_start: int. By default the queries are the last Q keys.
        left: As of `distance_vector`.
        heads: int, N. Yang et al., 2019: a query attends to the keys of its
            own head and of N // 2 heads on each side, as far as there are any.

    Returns:
        The output, `[B, H, Q, D]`, and the weights, `[B, H, Q, K]`, summed over
        the heads of the keys.
    """
    shape = (*q.shape[:3], k.shape[2])
    if query_start is None:
        query_start = k.shape[2] - q.shape[2]
    bias = np.broadcast_to(bias, shape)
    output, weights = np.zeros_like(q), np.zeros(shape, q.dtype)
    for b, h, i in np.ndindex(shape[:3]):
        e, keys_values = [], []
        for g in range(max(h - heads // 2, 0), h + heads // 2 + 1):
            for j in range(shape[3] if g < shape[1] else 0):
                distance = j - (query_start + i)
                key_vector = distance_vector(key_table, h, distance, left)
                value_vector = distance_vector(value_table, h, distance, left)
                key, value = k[b, g, j] + key_vector, v[b, g, j] + value_vector
                e.append(q[b, h, i] @ key + bias[b, h, i, j])
                keys_values.append((j, value))
        for alpha, (j, value) in zip(softmax(e), keys_values, strict=True):
            weights[b, h, i, j] += alpha
            output[b, h, i] += alpha * value
    return output, weights


def feature_wise_attention(q, k, v, key_table, value_table, bias):
    """Shen et al., 2018, equations of DiSA: a softmax for each feature.

    The arguments are those of `shaw_attention`; q is not scaled.
    """
    output = np.zeros_like(q)
    for b, h, i, d in np.ndindex(q.shape):
        first = k.shape[2] - q.shape[2] + i
        e, values = [], []
        for j in range(k.shape[2]):
            key = k[b, h, j] + distance_vector(key_table, h, j - first)
            value = v[b, h, j] + distance_vector(value_table, h, j - first)
            e.append(5 * np.tanh((q[b, h, i, d] + key[d]) / 5))
            values.append(value[d])
        output[b, h, i, d] = softmax(e + bias[b, h, i]) @ values
    return output


def sinusoids(positions, channels):
    """Vaswani et al., section 3.5: sines, then cosines, then perhaps a 0."""
    half = channels // 2
    signal = np.zeros([len(positions), channels])
    for row, position in enumerate(positions):
        for i in range(half):
            rate = 10000.0 ** (-i / (half - 1)) if half > 1 else 1.0
            signal[row, i] = np.sin(position * rate)
            signal[row, half + i] = np.cos(position * rate)
    return signal


def layer_norm(x, gamma, beta, epsilon):
    """Ba et al., 2016, one vector at a time."""
    y = np.zeros_like(x)
    for place in np.ndindex(x.shape[:-1]):
        centered = x[place] - x[place].mean()
        deviation = np.sqrt(np.mean(centered**2) + epsilon)
        y[place] = gamma * centered / deviation + beta
    return y


def under(weights, name):
    """Returns the weights of one part."""
    prefix = name + "/"
    return {
        path.removeprefix(prefix): value
        for path, value in weights.items()
        if path.startswith(prefix)
    }


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def sees(i, j, head, num_heads, window=0, direction="both"):
    """Returns whether the query at i may attend to j, by position alone."""
    if window and abs(i - j) > window:
        return False
    if direction == "split":
        larger_half = (num_heads + 1) // 2
        direction = "forward" if head < larger_half else "backward"
    return {"both": True, "forward": j <= i, "backward": j >= i}[direction]


def gaussian(weights, kind, window, x, mean_key, size, head):
    """Yang et al., 2018: the bias of a query `[F]`, as a function of j."""
    hidden = np.tanh(x @ weights["localness_position_hidden"])
    place = size * sigmoid(
        hidden @ weights["localness_position_vectors"][:, head]
    )
    if kind == "layer":
        hidden = np.tanh(mean_key @ weights["localness_window_hidden"])
    if kind != "fixed":
        window = size * sigmoid(
            hidden @ weights["localness_window_vectors"][:, head]
        )
        window = max(window, 1.0)
    sigma = window / 2
    return lambda j: -((j - place) ** 2) / (2 * sigma**2)


def other_logits(weights, q, k, seen, x, localness=None, width=10):
    """Returns the summand of the dot products of q and k: `[B, H, Q, K]`.

    Args:
        weights: dict of the weights of the attention, by path. With score
            vectors, additive logits replace the dot products.
        q: `[B, H, Q, D]`, and k: `[B, H, K, D]`.
        seen: bool `[B, H, Q, K]`: the keys that a query may attend to, before a
            window or a direction.
        x: `[B, Q, F]`: the layer's input.
        localness: The kind, and
        width: its fixed window.
    """
    more = np.zeros(seen.shape)
    for b, h, n in np.ndindex(seen.shape[:3]):
        i = k.shape[2] - q.shape[2] + n
        if "score_vectors" in weights:
            table = weights.get("relative_positions_keys")
            for j in range(k.shape[2]):
                key = k[b, h, j] + distance_vector(table, h, j - i)
                sum_ = weights["score_vectors"][h] @ np.tanh(q[b, h, n] + key)
                more[b, h, n, j] = sum_ - q[b, h, n] @ key
        if localness:
            means = [
                k[b, g, seen[b, g, n]].sum(0) / max(seen[b, g, n].sum(), 1)
                for g in range(k.shape[1])
            ]
            bias = gaussian(
                weights,
                localness,
                width,
                x[b, n],
                np.concatenate(means),
                seen[b, h, n].sum(),
                h,
            )
            more[b, h, n] += [bias(j) for j in range(k.shape[2])]
    return more


def t5_bucket(distance, buckets, max_distance, bidirectional):
    """Raffel et al.'s released code, for one distance j - i."""
    first = 0
    if bidirectional:
        buckets //= 2
        if distance > 0:
            first = buckets
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    share = np.log(distance / exact) / np.log(max_distance / exact)
    # The logarithms of a start may round to less than a whole number.
    step = int(share * (buckets - exact) + 1e-9)
    return first + min(exact + step, buckets - 1)


def t5_bias(table, queries, keys, max_distance, bidirectional):
    """Returns the bias `[H, Q, K]` of a table `[R, H]`, pair by pair.

    The queries are the last Q keys.
    """
    bias = np.zeros([table.shape[1], queries, keys])
    for h, n, j in np.ndindex(bias.shape):
        distance = j - (keys - queries + n)
        bucket = t5_bucket(distance, len(table), max_distance, bidirectional)
        bias[h, n, j] = table[bucket, h]
    return bias


def pair_bias(scheme, weights, head, i, j):
    """Press, Chi and Li et al.: the bias of a query at i and a key at j.

    Args:
        scheme: "alibi", for two or three heads; "kerple"; "fire"; or one
            without a bias.
        weights: dict of the weights of the attention, by path.
        head: int.
        i: int, and
        j: int.
    """
    distance = abs(j - i)
    if scheme == "alibi":
        # Of 3 heads, the third slope is the first of 4 heads'.
        return -[2.0**-4, 2.0**-8, 2.0**-2][head] * distance
    if scheme == "kerple":
        r1, r2 = (abs(weights[f"kerple_{r}"][head]) for r in ("r1", "r2"))
        return -r1 * np.log(1 + r2 * distance)
    if scheme == "fire":
        c, length = abs(weights["fire_c"]), 512 * abs(weights["fire_length"])
        longest = max(length, i, j)
        share = np.log(c * distance + 1) / np.log(c * longest + 1)
        inputs = [share, np.sign(j - i)][: len(weights["fire_hidden"])]
        hidden = inputs @ weights["fire_hidden"] + weights["fire_hidden_bias"]
        return np.maximum(hidden, 0) @ weights["fire_output"][:, head]
    return 0.0


def transformer_xl(weights, head, q, key, distance):
    """Dai et al., 2019, section 3.3: the terms b, c and d of a logit.

    Args:
        weights: dict of the weights of the attention, by path.
        head: int.
        q: `[D]`, already scaled.
        key: `[D]`.
        distance: int: the query's position minus the key's.
    """
    depth = len(q)
    u, v = (weights[f"transformer_xl_{x}"][head] / depth**0.5 for x in "uv")
    (r,) = sinusoids([distance], depth * len(weights["transformer_xl_u"]))
    projected = r @ weights["transformer_xl_kernel"]
    own = projected[head * depth : (head + 1) * depth]
    return u @ key + q @ own + v @ own


def multihead(
    weights,
    num_heads,
    queries,
    memory,
    allowed,
    *,
    window=0,
    heads_window=1,
    direction="both",
    localness=None,
    localness_window=10,
    scheme=None,
    t5=None,
    left=None,
    score=None,
):
    """Vaswani et al., section 3.2.2, with the tables if there are any.

    Args:
        weights: dict of arrays by path.
        num_heads: int, H.
        queries: `[B, Q, F]`, at the last Q places of the keys.
        memory: `[B, K, F]`.
        allowed: bool, broadcasts to `[B, H, Q, K]`.
        window: As of a `TransformerAttention`, and so are the others.
        scheme: None, "rotary", "transformer_xl", or as of `pair_bias`.
        t5: None, or the arguments of `t5_bias` from max_distance on, for the
            table "relative_attention_bias".
        left: As of `distance_vector`.
        score: None or "feature_wise"; additive scores are seen in `weights`.
    """

    def heads(name, x):
        x = x @ weights[f"{name}/kernel"]
        return np.stack(np.split(x, num_heads, axis=-1), 1)  # [B, H, L, D]

    q, k, v = heads("q", queries), heads("k", memory), heads("v", memory)
    if "score_vectors" not in weights and score is None:
        q = q / np.sqrt(q.shape[-1])
    if scheme == "rotary":
        q, k = turned(q), turned(k)
    allowed = np.broadcast_to(allowed, (*q.shape[:3], k.shape[2]))
    first = k.shape[2] - q.shape[2]
    seen = allowed & [
        [
            [
                sees(first + n, j, h, num_heads, window, direction)
                for j in range(k.shape[2])
            ]
            for n in range(q.shape[2])
        ]
        for h in range(num_heads)
    ]
    more = other_logits(
        weights, q, k, allowed, queries, localness, localness_window
    )
    for b, h, n, j in np.ndindex(more.shape):
        more[b, h, n, j] += pair_bias(scheme, weights, h, first + n, j)
        if scheme == "transformer_xl":
            distance = first + n - j
            more[b, h, n, j] += transformer_xl(
                weights, h, q[b, h, n], k[b, h, j], distance
            )
    if t5:
        table = weights["relative_attention_bias"]
        more = more + t5_bias(table, *seen.shape[2:], *t5)
    bias = np.where(seen, 0.0, -1e9) + more
    tables = [
        weights.get(f"relative_positions_{kind}") for kind in ("keys", "values")
    ]
    if score == "feature_wise":
        output = feature_wise_attention(q, k, v, *tables, bias)
    else:
        output, _ = shaw_attention(
            q, k, v, *tables, bias=bias, heads=heads_window, left=left
        )
    output = np.concatenate(list(output.swapaxes(0, 1)), -1)  # [B, Q, F]
    return output @ weights["output_transform/kernel"]


def turned(x):
    """Multiplies neighbouring channels, as complex numbers, with e^(i angle).

    Args:
        x: `[B, H, L, D]`, at the positions from 0.
    """
    numbers = x[..., 0::2] + 1j * x[..., 1::2]  # [B, H, L, D / 2]
    for position, channel in np.ndindex(numbers.shape[-2:]):
        angle = position / 10000.0 ** (2 * channel / x.shape[-1])
        numbers[..., position, channel] *= np.exp(1j * angle)
    result = np.empty_like(x)
    result[..., 0::2], result[..., 1::2] = numbers.real, numbers.imag
    return result


def feed_forward(weights, x):
    """Vaswani et al., section 3.3."""
    inner = x @ weights["conv1/kernel"] + weights["conv1/bias"]
    inner = np.maximum(inner, 0.0)
    return inner @ weights["conv2/kernel"] + weights["conv2/bias"]


def sublayer(weights, epsilon, x, function):
    """A sublayer with its residual connection, and norms if it has weights."""

    def norm(name, x):
        if f"{name}/gamma" not in weights:
            return x
        scale = weights[f"{name}/gamma"], weights[f"{name}/beta"]
        return layer_norm(x, *scale, epsilon)

    return norm("after_norm", x + function(norm("before_norm", x)))


def block(
    weights, hparams, x, allowed, memory=None, memory_allowed=None, layer=0
):
    """One layer of the encoder, or with `memory` of the decoder."""
    heads, epsilon = hparams.num_heads, hparams.norm_epsilon
    kind = {}

    def has(lowest):
        return not lowest or (memory is None and layer < lowest)

    if has(hparams.attention_window_layers):
        kind["window"] = hparams.attention_window
    if hparams.localness != "none" and has(hparams.localness_layers):
        kind["localness"] = hparams.localness
        kind["localness_window"] = hparams.localness_window
    kind["scheme"] = hparams.self_attention_type.removeprefix("dot_product_")
    if hparams.self_attention_type == "dot_product_relative_bias":
        most = hparams.relative_attention_max_distance
        kind["t5"] = most, memory is None
    if hparams.max_relative_position_right >= 0:
        kind["left"] = hparams.max_relative_position

    def around(name, x, function):
        parts = under(weights, f"{name}_residual")
        return sublayer(parts, epsilon, x, function)

    part = under(weights, "self_attention")
    x = around(
        "self_attention",
        x,
        lambda y: multihead(part, heads, y, y, allowed, **kind),
    )
    if memory is not None:
        cross = under(weights, "encdec_attention")
        x = around(
            "encdec_attention",
            x,
            lambda y: multihead(cross, heads, y, memory, memory_allowed),
        )
    return around("ffn", x, lambda y: feed_forward(under(weights, "ffn"), y))


def layer_weights(weights, stack, number):
    """Returns the weights of a layer, with those that its stack shares."""
    part = under(weights, f"{stack}_layer_{number}")
    name = "self_attention/relative_attention_bias"
    first = f"{stack}_layer_0/{name}"
    return part | ({name: weights[first]} if first in weights else {})


def decoder_hparams(hparams):
    """Returns hparams whose fields of both stacks are the decoder's."""
    own = hparams.to_dict()
    for name, same in (
        ("pos", "same"),
        ("self_attention_type", "same"),
        ("max_relative_position", -1),
    ):
        if own[f"decoder_{name}"] != same:
            own[name] = own[f"decoder_{name}"]
    return types.SimpleNamespace(**own)


def transformer_logits(weights, hparams, inputs, targets, shifts=(0, 0)):
    """The whole model, teacher-forced: `[B, T]` ids to `[B, T, V]` logits.

    Args:
        weights: dict of arrays by path, without the model's name.
        hparams: `hparam.HParams`.
        inputs: `[B, S]` ids.
        targets: `[B, T]` ids, not shifted.
        shifts: The positions where the sinusoids of source and target begin.
    """
    shared = weights["target_embedding/embeddings"]
    stacks = {"source": hparams, "target": decoder_hparams(hparams)}
    source_table = weights.get("source_embedding/embeddings", shared)
    softmax_table = weights.get("softmax/embeddings", shared)

    def embed(table, ids, side):
        x = table[ids] * np.sqrt(hparams.hidden_size)
        x[ids == 0] = 0.0
        if side == "source" and hparams.use_target_space_embedding:
            spaces = weights["target_space_embedding/embeddings"]
            x += spaces[hparams.target_space_id]
        positions = np.arange(ids.shape[1])
        if stacks[side].pos == "timing":
            first = shifts[0] if side == "source" else shifts[1]
            x += sinusoids(first + positions, hparams.hidden_size)
        if stacks[side].pos == "emb":
            learned = weights[f"{side}_positions/embeddings"]
            x += learned[np.minimum(positions, len(learned) - 1)]
        return x

    def final(x, side):
        norm = under(weights, f"{side}_norm")
        if not norm:
            return x
        return layer_norm(x, norm["gamma"], norm["beta"], hparams.norm_epsilon)

    is_token = (inputs != 0)[:, None, None, :]
    x = embed(source_table, inputs, "source")
    encoder = hparams.num_encoder_layers or hparams.num_hidden_layers
    decoder = hparams.num_decoder_layers or hparams.num_hidden_layers
    for i in range(encoder):
        part = layer_weights(weights, "encoder", i)
        x = block(part, hparams, x, is_token, layer=i)
    memory = final(x, "encoder")
    shifted = np.concatenate([0 * targets[:, :1], targets[:, :-1]], 1)
    x = embed(shared, shifted, "target")
    causal = np.tri(targets.shape[1], dtype=bool)
    for i in range(decoder):
        part = layer_weights(weights, "decoder", i)
        x = block(part, stacks["target"], x, causal, memory, is_token)
    return final(x, "decoder") @ softmax_table.T
