"""The attention of a trained model: weights of a sentence, and by distance.

Shapes: B sentences, H heads, Q queries, K keys, L length of a sentence.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from relpos_tf import errors
from relpos_tf.decoding import decode_hparam
from relpos_tf.decoding import engines
from relpos_tf.decoding import loading
from relpos_tf.decoding import model_engine
from relpos_tf.layers.positions import shaw
from relpos_tf.models import transformer

# Means are over the first sentences that are short enough.
MOST_SENTENCES = 64
MOST_PIECES = 100
# Means are computed up to this distance, to both sides.
MOST_DISTANCE = 20
# Lengths of a sentence that fits into a figure, in pieces with EOS.
_SHOWN_LENGTHS = range(5, 11)
_DIGITS = 5


def describe(
    run_dir_or_checkpoint: str | pathlib.Path, sources: Sequence[str]
) -> dict[str, Any]:
    """Describes the attention of a trained model that translates sentences.

    Args:
        run_dir_or_checkpoint: As of `loading.load_model`.
        sources: list of str. Blank lines, lines of more than `MOST_PIECES`
            pieces and lines after the first `MOST_SENTENCES` are left out.
            The first line that fits into a figure is the one that is shown.

    Returns:
        A dict that JSON can hold, empty without sentences:
        `source`, `translation`: the sentence shown;
        `source_pieces`, `target_pieces`: its pieces, EOS included;
        `sentences`: the number of sentences;
        `encoder`, `decoder`, `cross`: the attention of all layers, as
        `weights`, `[layer][head][query][key]`, of the sentence shown;
        for self-attention also `distances`, a list of j - i, and
        `by_distance`, `[layer][head][distance]`: the mean weight of the keys
        at that distance, None if no query has one. Key j of the decoder is
        the target before position j: key 0 is the start;
        `tables`: see `describe_tables`.

    Raises:
        UserError: there is no run, or it cannot be read, or see
            `weights_of`.
    """
    engine = model_engine.ModelEngine(
        loading.load_model(run_dir_or_checkpoint),
        loading.load_tokenizer(run_dir_or_checkpoint),
    )
    items = engine.items([line for line in sources if line.strip()])
    short = [item for item in items if item.size <= MOST_PIECES]
    # Without a short sentence, the shortest is taken.
    items = short[:MOST_SENTENCES] or sorted(items, key=_size)[:1]
    if not items:
        return {}
    settings = engine.complete(decode_hparam.DecodeHParams())
    translations = engine.translate(items, settings, 1)
    targets = [[i for i in one.ids[0] if i] for one in translations]
    shown = next(
        (n for n, item in enumerate(items) if item.size in _SHOWN_LENGTHS),
        min(range(len(items)), key=lambda n: items[n].size),
    )
    pieces = engine.tokenizer.pieces()
    source = items[shown].content
    return {
        "source": engine.tokenizer.decode(source),
        "translation": translations[shown].texts[0],
        "source_pieces": [pieces[i] for i in source],
        "target_pieces": [pieces[i] for i in targets[shown]],
        "sentences": len(items),
        **_describe_weights(
            engine.model, [item.content for item in items], targets, shown
        ),
        "tables": describe_tables(engine.model),
    }


def describe_tables(model: transformer.Transformer) -> list[dict[str, Any]]:
    """Returns the norms of the relative position vectors.

    Returns:
        For each table, a dict of `stack`, encoder or decoder, `layer`, from
        0, `kind`, keys or values, and `norms`, `[head][distance]`, from -k to
        k; one head if all share the table. Empty without relative positions.
    """
    described = []
    for stack, blocks, hparams in (
        ("encoder", model.encoder_blocks, model.hparams),
        ("decoder", model.decoder_blocks, model.hparams.of_decoder()),
    ):
        left = hparams.max_relative_position
        for number, block in enumerate(blocks):
            found = shaw.tables_of(block.self_attention)
            for kind in sorted({"keys", "values"} & found.keys()):
                table = shaw.symmetric(found[kind].numpy(), left)
                norms = np.linalg.norm(table, axis=-1)
                described.append(
                    {
                        "stack": stack,
                        "layer": number,
                        "kind": kind,
                        "norms": _rounded(np.atleast_2d(norms)),
                    }
                )
    return described


def weights_of(
    model: transformer.Transformer, inputs: np.ndarray, targets: np.ndarray
) -> dict[str, list[np.ndarray]]:
    """Returns `Transformer.attention_weights` as arrays.

    Raises:
        UserError: weights are NaN: the model has diverged.
    """
    weights = {
        name: [layer.numpy() for layer in layers]
        for name, layers in model.attention_weights(inputs, targets).items()
    }
    if np.isnan(
        [np.sum(x) for layers in weights.values() for x in layers]
    ).any():
        raise errors.UserError(
            "Expected attention weights from 0 to 1. Received: NaN. The model "
            "has diverged; take an earlier checkpoint."
        )
    return weights


def mean_by_distance(
    weights: np.ndarray, lengths: Sequence[int], distances: Sequence[int]
) -> np.ndarray:
    """Returns the mean weight of the keys at each distance.

    Each mean is over the queries that have a key at that distance, so that
    long distances, which are rare, count as much as short ones.

    Args:
        weights: `[B, H, L, L]` array of self-attention.
        lengths: Length of each sentence, at most L.
        distances: Distances from query to key, j - i.

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
    weights = weights_of(
        model, model_engine.padded(sources), model_engine.padded(targets)
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


def _size(item: engines.Item) -> int:
    return item.size


def _rounded(array: np.ndarray) -> list:
    """Returns nested lists of rounded numbers, with None for NaN."""
    if array.ndim > 1:
        return [_rounded(row) for row in array]
    return [round(float(x), _DIGITS) if np.isfinite(x) else None for x in array]
