"""The variables of a model, told from its hparams without building it.

Building takes memory and time in proportion to sizes that may be nonsense;
what is said here can be compared with a checkpoint first. The order is not
that of the model: tables, then block after block.

Shapes: V vocabulary, F features, H heads, D depth per head, R rows of a
relative table.
"""

from collections.abc import Iterator

from relpos_tf import hparam

Shape = tuple[int, ...]
Variable = tuple[str, Shape]


def of_model(
    hparams: hparam.HParams, name: str = "transformer"
) -> Iterator[Variable]:
    """Yields the path and the shape of every variable of a `Transformer`.

    Args:
        hparams: `hparam.HParams` of the model.
        name: str. The model's name, with which paths begin.

    Example:

    >>> hparams = hparam.HParams(vocab_size=11, hidden_size=16)
    >>> next(of_model(hparams))
    ('transformer/target_embedding/embeddings', (11, 16))
    """
    for path, shape in _variables(hparams):
        yield f"{name}/{path}", shape


def _variables(hparams):
    size = hparams.hidden_size
    tables = {"target_embedding": hparams.vocab_size}  # rows, by name
    if not hparams.shared_embedding:
        tables["source_embedding"] = hparams.vocab_size
    if not hparams.shared_embedding_and_softmax_weights:
        tables["softmax"] = hparams.vocab_size
    if hparams.use_target_space_embedding:
        tables["target_space_embedding"] = hparam.TARGET_SPACES
    if hparams.pos == "emb":
        tables["source_positions"] = hparams.max_length
        tables["target_positions"] = hparams.max_length
    for table, rows in tables.items():
        yield f"{table}/embeddings", (rows, size)
    if hparams.layer_preprocess_sequence == "n":
        for stack in ("encoder", "decoder"):
            yield from _norm(f"{stack}_norm", size)
    for i in range(hparams.encoder_layers):
        yield from _block(f"encoder_layer_{i}", hparams)
    for i in range(hparams.decoder_layers):
        block = f"decoder_layer_{i}"
        yield from _block(block, hparams)
        yield from _attention(f"{block}/encdec_attention", hparams)
        yield from _residual(f"{block}/encdec_attention_residual", hparams)


def _block(name, hparams):
    """Yields what blocks of both stacks have."""
    size, inner = hparams.hidden_size, hparams.filter_size
    attention = f"{name}/self_attention"
    yield from _attention(attention, hparams)
    yield from _positions(attention, hparams)
    yield from _residual(f"{attention}_residual", hparams)
    for layer, shape in (("conv1", (size, inner)), ("conv2", (inner, size))):
        yield f"{name}/ffn/{layer}/kernel", shape
        yield f"{name}/ffn/{layer}/bias", shape[1:]
    yield from _residual(f"{name}/ffn_residual", hparams)


def _attention(name, hparams):
    """Yields the variables of an attention by content."""
    size = hparams.hidden_size
    for kernel in ("q", "k", "v", "output_transform"):
        yield f"{name}/{kernel}/kernel", (size, size)
    if hparams.attention_score == "additive":
        depth = size // hparams.num_heads
        yield f"{name}/score_vectors", (hparams.num_heads, depth)


def _positions(name, hparams):
    """Yields what self-attention has for positions."""
    size, heads = hparams.hidden_size, hparams.num_heads
    if hparams.is_relative:
        shape = (2 * hparams.max_relative_position + 1, size // heads)  # [R, D]
        if not hparams.heads_share_relative_embedding:
            shape = (heads, *shape)
        if hparams.add_relative_to_keys:
            yield f"{name}/relative_positions_keys", shape
        if hparams.add_relative_to_values:
            yield f"{name}/relative_positions_values", shape
    if hparams.localness == "none":
        return
    parts = ["position"]
    if hparams.localness != "fixed":
        parts.append("window")
    for part in parts:
        yield f"{name}/localness/{part}_vectors", (size, heads)
    if hparams.localness != "layer":
        parts = parts[:1]  # one hidden layer serves both
    for part in parts:
        yield f"{name}/localness/{part}_hidden/kernel", (size, size)


def _residual(name, hparams):
    if hparams.layer_preprocess_sequence == "n":
        yield from _norm(f"{name}/before_norm", hparams.hidden_size)
    if hparams.layer_postprocess_sequence == "dan":
        yield from _norm(f"{name}/after_norm", hparams.hidden_size)


def _norm(name, size):
    yield f"{name}/gamma", (size,)
    yield f"{name}/beta", (size,)
