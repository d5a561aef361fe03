"""Where a trained model looks: weights of a sentence, and by distance.

The weights are those of the model's own pass: what each attention layer is
called with is taken down, the layer is asked for its weights, and its answer
must give the output that the model went on with.

Shapes: B sentences, H heads, Q queries, K keys, L length of a sentence.
"""

import contextlib
import functools
import pathlib
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from relpos_tf import decode_hparam
from relpos_tf import engines
from relpos_tf import errors
from relpos_tf import loading
from relpos_tf.layers import attention
from relpos_tf.models import transformer

# Means are over this many sentences, the first that are not too long.
MOST_SENTENCES = 64
MOST_PIECES = 100
# Means are told up to this distance, to both sides.
MOST_DISTANCE = 20
# A sentence that fits into a picture, counted in pieces with EOS.
_SHOWN = range(5, 11)
# What outputs may differ by, as a part of the largest, or of 1.
_TOLERANCE = 1e-3
_DIGITS = 5


def describe(
    run_dir_or_checkpoint: str | pathlib.Path, sources: Sequence[str]
) -> dict[str, Any]:
    """Says where a trained model looks when it translates sentences.

    Args:
        run_dir_or_checkpoint: As of `loading.load_model`.
        sources: list of str. Blank ones, those beyond `MOST_PIECES` pieces
            and those after the first `MOST_SENTENCES` are left out. The first
            of a length that fits into a picture is the one that is shown.

    Returns:
        A dict that JSON can hold, empty if there is no sentence:
        `source`, `translation`, the sentence shown, and `source_pieces`,
        `target_pieces`, EOS included; `sentences`, their number;
        `encoder` and `decoder`, of self-attention: `distances`, a list of
        j - i, and `by_distance`, `[layer][head][distance]`, the mean weight
        that a query gives the key at that distance, over the queries that
        have one there; None where none has. These, and `cross`, have
        `weights`, `[layer][head][query][key]`, of the sentence shown. The
        decoder's key j is the target before position j: key 0 is the start.
        `tables`: see `describe_tables`.

    Raises:
        UserError: there is no run, or it cannot be read, or see
            `attention_weights`.
    """
    engine = engines.ModelEngine(
        loading.load_model(run_dir_or_checkpoint),
        loading.load_tokenizer(run_dir_or_checkpoint),
    )
    items = engine.items([line for line in sources if line.strip()])
    short = [item for item in items if item.size <= MOST_PIECES]
    # A long one is better than none.
    items = short[:MOST_SENTENCES] or sorted(items, key=_size)[:1]
    if not items:
        return {}
    settings = engine.settings(decode_hparam.DecodeHParams())
    found = engine.translate(items, settings, 1)
    targets = [[i for i in one.ids[0] if i] for one in found]
    shown = next(
        (n for n, item in enumerate(items) if item.size in _SHOWN),
        min(range(len(items)), key=lambda n: items[n].size),
    )
    pieces = engine.tokenizer.pieces()
    source = items[shown].content
    return {
        "source": engine.tokenizer.decode(source),
        "translation": found[shown].texts[0],
        "source_pieces": [pieces[i] for i in source],
        "target_pieces": [pieces[i] for i in targets[shown]],
        "sentences": len(items),
        **_describe_weights(
            engine.model, [item.content for item in items], targets, shown
        ),
        "tables": describe_tables(engine.model),
    }


def describe_tables(model: transformer.Transformer) -> list[dict[str, Any]]:
    """Returns how long the vectors of relative positions are.

    Returns:
        For each table, a dict of `stack`, encoder or decoder, `layer`, from
        0, `kind`, keys or values, and `norms`, `[head][distance]`, from -k to
        k; one head if all share the table. Empty without relative positions.
    """
    found = []
    for stack, layers in _self_attention(model).items():
        for number, layer in enumerate(layers):
            for kind in ("keys", "values"):
                table = {"keys": layer.key_table, "values": layer.value_table}[
                    kind
                ]
                if table is None:
                    continue
                norms = np.linalg.norm(table.numpy(), axis=-1)
                found.append(
                    {
                        "stack": stack,
                        "layer": number,
                        "kind": kind,
                        "norms": _rounded(np.atleast_2d(norms)),
                    }
                )
    return found


def attention_weights(
    model: transformer.Transformer, inputs: tf.Tensor, targets: tf.Tensor
) -> dict[str, list[np.ndarray]]:
    """Returns the attention weights of a teacher-forced pass.

    Args:
        model: The model.
        inputs: `[B, S]` integer tensor of source ids, padded with 0.
        targets: `[B, T]` integer tensor of target ids, likewise.

    Returns:
        dict of `encoder`, `[B, H, S, S]` for each layer, `decoder`, likewise
        `[B, H, T, T]`, and `cross`, `[B, H, T, S]`.

    Raises:
        UserError: the weights do not give the output, or are no numbers.
    """
    stacks = _self_attention(model) | {
        "cross": [block.encdec_attention for block in model.decoder_blocks]
    }
    layers = [layer for stack in stacks.values() for layer in stack]
    with _recorded(layers) as calls:
        model(inputs, targets)
    weights = iter(
        [
            _weights(layer, *call)
            for layer, call in zip(layers, calls, strict=True)
        ]
    )
    return {
        name: [next(weights) for _ in stack] for name, stack in stacks.items()
    }


def mean_by_distance(
    weights: np.ndarray, lengths: Sequence[int], distances: Sequence[int]
) -> np.ndarray:
    """Returns the mean weight of the keys at each distance.

    Only queries that have a key at that distance count: a distance that is
    rare, as long ones are, is not less for it.

    Args:
        weights: `[B, H, L, L]` array of self-attention.
        lengths: How many of the L positions each sentence has.
        distances: Of key and query, j - i.

    Returns:
        A `[H, D]` array for D distances; NaN where no query has a key.

    Example:

    >>> weights = np.array([[[[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [0, 0, 1]]]])
    >>> mean_by_distance(weights, [3], [0, 2, 3]).round(2).tolist()
    [[0.57, 0.0, nan]]
    """
    sums = np.zeros([weights.shape[1], len(distances)])
    counts = np.zeros(len(distances))
    for one, length in zip(weights, lengths, strict=True):
        for n, distance in enumerate(distances):
            # [H, number of queries]
            keys = one[:, :length, :length].diagonal(distance, 1, 2)
            sums[:, n] += keys.sum(-1)
            counts[n] += keys.shape[-1]
    return sums / np.where(counts, counts, np.nan)


def _describe_weights(model, sources, targets, shown):
    """Returns the parts `encoder`, `decoder` and `cross` of `describe`."""
    weights = attention_weights(
        model, engines.padded(sources), engines.padded(targets)
    )
    lengths = [len(row) for row in sources], [len(row) for row in targets]
    rows = {"encoder": lengths[0], "decoder": lengths[1], "cross": lengths[1]}
    keys = rows | {"cross": lengths[0]}
    parts = {}
    for name, layers in weights.items():
        size = rows[name][shown], keys[name][shown]
        parts[name] = {
            "weights": [
                _rounded(layer[shown, :, : size[0], : size[1]])
                for layer in layers
            ]
        }
    for name, last in (("encoder", MOST_DISTANCE), ("decoder", 0)):
        distances = list(range(-MOST_DISTANCE, last + 1))
        parts[name] |= {
            "distances": distances,
            "by_distance": [
                _rounded(mean_by_distance(layer, rows[name], distances))
                for layer in weights[name]
            ],
        }
    return parts


def _self_attention(model):
    return {
        name: [block.self_attention for block in blocks]
        for name, blocks in (
            ("encoder", model.encoder_blocks),
            ("decoder", model.decoder_blocks),
        )
    }


@contextlib.contextmanager
def _recorded(
    layers: Sequence[attention.MultiHeadAttention],
) -> Iterator[list]:
    """Yields a list that gets the arguments and the output of each layer."""
    calls = [None] * len(layers)

    def call(number, original, *args, **kwargs):
        output = original(*args, **kwargs)
        calls[number] = args, kwargs, output
        return output

    for number, layer in enumerate(layers):
        layer.call = functools.partial(call, number, layer.call)
    try:
        yield calls
    finally:
        for layer in layers:
            del layer.call  # the class has its own


def _weights(layer, args, kwargs, expected):
    """Returns the weights of a layer's call: an array `[B, H, Q, K]`."""
    queries, memory = (*args, None)[:2]
    may_attend = kwargs.get("may_attend")
    if kwargs.get("use_causal_mask"):
        length = tf.shape(queries)[1]
        causal = attention.causal_mask(length, length)
        may_attend = causal if may_attend is None else may_attend & causal
    output, weights = layer.attend_and_weigh(
        queries,
        layer.project(queries if memory is None else memory),
        may_attend=may_attend,
    )
    error = float(tf.reduce_max(tf.abs(output - expected)))
    size = float(tf.reduce_max(tf.abs(expected)))
    if not error <= _TOLERANCE * max(size, 1.0):  # nor if they are no numbers
        raise errors.UserError(
            f"Expected attention weights that give the output of {layer.path}. "
            f"Received: outputs up to {size:g} that differ by {error:g}."
        )
    return weights.numpy()


def _size(item: engines.Item) -> int:
    return item.size


def _rounded(array: np.ndarray) -> list:
    """Returns nested lists, short in JSON; None for what is no number."""
    if array.ndim > 1:
        return [_rounded(row) for row in array]
    return [round(float(x), _DIGITS) if np.isfinite(x) else None for x in array]
