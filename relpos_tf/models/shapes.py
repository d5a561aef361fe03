"""The variables of a model, computed from its hparams without building it.

Building a model takes memory and time in proportion to sizes that may be
nonsense; these shapes can be compared with a checkpoint first. The order is
not that of the model: tables, then block after block.

Shapes: V vocabulary, F features, H heads, D depth per head.
"""

from collections.abc import Iterator

from relpos_tf import hparam
from relpos_tf.models import arguments

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
    tables = {"target_embedding": hparams.vocab_size}  # name: rows
    if not hparams.shared_embedding:
        tables["source_embedding"] = hparams.vocab_size
    if not hparams.shared_embedding_and_softmax_weights:
        tables["softmax"] = hparams.vocab_size
    if hparams.use_target_space_embedding:
        tables["target_space_embedding"] = hparam.TARGET_SPACES
    if hparams.pos == "emb":
        tables["source_positions"] = hparams.max_length
    if hparams.of_decoder().pos == "emb":
        tables["target_positions"] = hparams.max_length
    for table, rows in tables.items():
        yield f"{table}/embeddings", (rows, size)
    if hparams.layer_preprocess_sequence == "n":
        for stack in ("encoder", "decoder"):
            yield from _norm(f"{stack}_norm", size)
    encoder_positions = arguments.encoder_positions(hparams)
    decoder_positions = arguments.decoder_positions(hparams)
    source_positions = arguments.source_positions(hparams)
    for i in range(hparams.encoder_layers):
        block = f"encoder_layer_{i}"
        yield from _attention(
            f"{block}/self_attention", hparams, _own(encoder_positions, i)
        )
        yield from _feed_forward(f"{block}/ffn", hparams)
    for i in range(hparams.decoder_layers):
        block = f"decoder_layer_{i}"
        yield from _attention(
            f"{block}/self_attention", hparams, _own(decoder_positions, i)
        )
        yield from _attention(
            f"{block}/encdec_attention", hparams, source_positions
        )
        yield from _feed_forward(f"{block}/ffn", hparams)


def _own(positions, layer):
    """Returns the schemes with weights in a layer; only the first has all."""
    return [one for one in positions if layer == 0 or not one.shared]


def _attention(name, hparams, positions):
    """Yields the variables of an attention and of the norms around it."""
    size, heads = hparams.hidden_size, hparams.num_heads
    for kernel in ("q", "k", "v", "output_transform"):
        yield f"{name}/{kernel}/kernel", (size, size)
    for scheme in positions:
        for path, shape in scheme.weight_shapes(heads, size // heads).items():
            yield f"{name}/{path}", shape
    yield from _residual(f"{name}_residual", hparams)


def _feed_forward(name, hparams):
    """Yields the variables of a feed-forward layer and its norms."""
    size, inner = hparams.hidden_size, hparams.filter_size
    for layer, shape in (("conv1", (size, inner)), ("conv2", (inner, size))):
        yield f"{name}/{layer}/kernel", shape
        yield f"{name}/{layer}/bias", shape[1:]
    yield from _residual(f"{name}_residual", hparams)


def _residual(name, hparams):
    if hparams.layer_preprocess_sequence == "n":
        yield from _norm(f"{name}/before_norm", hparams.hidden_size)
    if hparams.layer_postprocess_sequence == "dan":
        yield from _norm(f"{name}/after_norm", hparams.hidden_size)


def _norm(name, size):
    yield f"{name}/gamma", (size,)
    yield f"{name}/beta", (size,)
