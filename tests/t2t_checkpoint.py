"""Writes a model directory in the format of tensor2tensor 1.15.7.

The names and shapes of variables are those of tensor2tensor, the values are
random. TensorFlow 1's saver writes the files.

Shapes: F features, V vocabulary, R rows of a relative table, D depth per head.
"""

import functools
import json
import pathlib

import numpy as np
import tensorflow as tf

from tests import testing

VOCABULARY = "vocab.translate_ende_wmt32k.32768.subwords"
_BODY = "transformer/body"
_SPACES = 32  # rows of the target-space table, in every model
# Holes for functions in tensor2tensor's hparams; nothing fills them.
_HOLES = ("bottom", "loss", "name", "top", "weights_fn")


def hparams_dict(**overrides):
    """Returns a whole dict of hparams, of a model small enough for tests.

    It is `transformer_relative` with the sizes of the case `relative_nospace`
    of reference/t2t_model.npz: 2 layers, hidden_size 32, no target space.

    Args:
        **overrides: Values of hparams that are there.

    Raises:
        KeyError: there is no such hparam in tensor2tensor.
    """
    hparams = _small_hparams()
    unknown = overrides.keys() - hparams.keys()
    if unknown:
        raise KeyError(f"tensor2tensor has no hparams {sorted(unknown)}")
    return hparams | overrides


@functools.cache
def _small_hparams():
    cases = testing.t2t_cases("model", "t2t_model.npz")
    (hparams,) = (
        meta["hparams"] for case, meta, _ in cases if case == "relative_nospace"
    )
    return hparams


def random_variables(hparams, vocab_size, seed):
    """Returns the variables of a model: float32 arrays by name.

    No scale is 1 and no bias 0, so that none can be taken for another.

    Args:
        hparams: dict of tensor2tensor's hparams.
        vocab_size: int.
        seed: int.
    """
    random = np.random.default_rng(seed)
    variables = {}
    for name, shape in variable_shapes(hparams, vocab_size).items():
        values = random.normal(size=shape)
        if "/weights_" in name or name.endswith("kernel"):
            values *= shape[-1 if "/weights_" in name else 0] ** -0.5
        else:
            values *= 0.3
        if name.endswith("layer_norm_scale"):
            values += 1.0
        variables[name] = values.astype(np.float32)
    return variables


def variable_shapes(hparams, vocab_size):
    """Returns the shapes of a model's variables by name."""
    size = hparams["hidden_size"]
    shapes = _table_shapes(hparams, vocab_size)
    if hparams["use_target_space_embedding"]:
        shapes[f"{_BODY}/target_space_embedding/kernel"] = (_SPACES, size)
    if hparams["pos"] == "emb":
        for side in ("inputs", "targets"):
            name = f"{_BODY}/{side}_positional_embedding"
            shapes[name] = (hparams["max_length"], size)
    for stack in ("encoder", "decoder"):
        number = hparams[f"num_{stack}_layers"] or hparams["num_hidden_layers"]
        for i in range(number):
            scope = f"{_BODY}/{stack}/layer_{i}"
            shapes |= _attention_shapes(hparams, f"{scope}/self_attention")
            if hparams["self_attention_type"] == "dot_product_relative":
                shapes |= _relative_shapes(hparams, f"{scope}/self_attention")
            if stack == "decoder":
                part = f"{scope}/encdec_attention"
                shapes |= _attention_shapes(hparams, part)
            shapes |= _feed_forward_shapes(hparams, f"{scope}/ffn")
        if _has_norm(hparams["layer_preprocess_sequence"]):
            scope = f"{_BODY}/{stack}/layer_prepostprocess"
            shapes |= _norm_shapes(size, scope)
    return shapes


def _table_shapes(hparams, vocab_size):
    size = hparams["hidden_size"]
    if hparams["shared_embedding_and_softmax_weights"]:
        kinds = ("shared",)
    elif hparams["shared_embedding"]:
        kinds = ("shared", "softmax")
    else:
        kinds = ("input_emb", "target_emb", "softmax")
    number = hparams["symbol_modality_num_shards"]
    rows, longer = divmod(vocab_size, number)  # the first shards get one more
    return {
        f"transformer/symbol_modality_{vocab_size}_{size}/{kind}/weights_{i}": (
            rows + (i < longer),
            size,
        )
        for kind in kinds
        for i in range(number)
    }


def _has_norm(sequence):
    return sequence != "none" and "n" in sequence  # a letter for each part


def _norm_shapes(size, scope):
    return {
        f"{scope}/layer_norm/layer_norm_{part}": (size,)
        for part in ("scale", "bias")
    }


def _sublayer_norm_shapes(hparams, scope):
    shapes = {}
    for place, name in (
        ("preprocess", "layer_prepostprocess"),
        ("postprocess", "layer_postprocess"),
    ):
        if _has_norm(hparams[f"layer_{place}_sequence"]):
            shapes |= _norm_shapes(hparams["hidden_size"], f"{scope}/{name}")
    return shapes


def _attention_shapes(hparams, scope):
    size = hparams["hidden_size"]
    kernels = {
        f"{scope}/multihead_attention/{part}/kernel": (size, size)
        for part in ("q", "k", "v", "output_transform")
    }
    return _sublayer_norm_shapes(hparams, scope) | kernels


def _relative_shapes(hparams, scope):
    scope = f"{scope}/multihead_attention/dot_product_attention_relative"
    rows = 2 * hparams["max_relative_position"] + 1
    depth = hparams["hidden_size"] // hparams["num_heads"]
    return {
        f"{scope}/relative_positions_{side}/embeddings": (rows, depth)
        for side in ("keys", "values")
    }


def _feed_forward_shapes(hparams, scope):
    size, inner = hparams["hidden_size"], hparams["filter_size"]
    return _sublayer_norm_shapes(hparams, scope) | {
        f"{scope}/conv1/kernel": (size, inner),
        f"{scope}/conv1/bias": (inner,),
        f"{scope}/conv2/kernel": (inner, size),
        f"{scope}/conv2/bias": (size,),
    }


def subtokens(vocab_size):
    """Returns a vocabulary as tensor2tensor's: two reserved, then pieces.

    Every character of lower-case English can be spelled, and every other one
    by its number.
    """
    characters = [*"abcdefghijklmnopqrstuvwxyz0123456789\\_;"]
    pieces = [f"piece{i}_" for i in range(vocab_size - 2 - len(characters))]
    vocab = ["<pad>_", "<EOS>_", *pieces, *characters]
    assert len(vocab) == vocab_size, "too small to spell anything"
    return vocab


def write(folder, variables, hparams, *, step=250000, vocab=None, extra=True):
    """Writes a model directory.

    Args:
        folder: str or path. Made if it is not there. A second step may be
            written into the same folder.
        variables: dict of arrays by tensor2tensor's name.
        hparams: dict of tensor2tensor's hparams.
        step: int. Updates made.
        vocab: None for no vocabulary file, or the list of all subtokens.
        extra: bool. Whether to write also the files and variables of training
            alone: the step, the optimizer's slots, the averages of losses, and
            a meta graph.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if extra:
        variables = variables | training_variables(variables, step)
    _save(folder, variables, step, extra)
    (folder / "hparams.json").write_text(
        json.dumps(
            hparams | {name: {} for name in _HOLES}, indent=0, sort_keys=True
        )
    )
    flags = {
        "problem": "translate_ende_wmt32k",
        "model": "transformer",
        "hparams_set": "transformer_relative",
        "data_dir": "/data",
        "output_dir": "/model",
        "train_steps": step,
        "worker_gpu": 8,
    }
    lines = "\n".join(f"--{name}={value}" for name, value in flags.items())
    (folder / "flags_t2t.txt").write_text(lines)
    (folder / "flags.txt").write_text(f"{lines}\n--verbosity=0\n")
    if vocab is not None:
        text = "".join(f"'{piece}'\n" for piece in vocab)
        (folder / VOCABULARY).write_text(text, encoding="utf-8")


def training_variables(variables, step):
    """Returns the variables of training alone: arrays by name."""
    slots = {
        f"training/{name}/{slot}": np.full_like(value, number)
        for name, value in variables.items()
        for slot, number in (("Adam", 11.0), ("Adam_1", 13.0))
    }
    losses = {
        f"losses_avg/problem_0/{kind}_loss": np.float32(100.0)
        for kind in ("extra", "total", "training")
    }
    return {
        **slots,
        **losses,
        "global_step": np.int64(step),
        "train_stats/problem_0_steps": np.int32(step),
        "training/beta1_power": np.float32(0.9**step),
        "training/beta2_power": np.float32(0.997**step),
    }


def _save(folder, variables, step, with_graph):
    # A graph and a session of their own leave eager mode as it is.
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        feeds = {}
        tensors = {}
        for name, value in variables.items():
            initial = v1.placeholder(value.dtype, np.shape(value))
            tensors[name] = v1.Variable(initial, name=name, trainable=False)
            feeds[initial] = value
        names = {name: tensor.op.name for name, tensor in tensors.items()}
        assert all(name == found for name, found in names.items())
        session.run(v1.global_variables_initializer(), feeds)
        saver = v1.train.Saver(max_to_keep=20)
        state = v1.train.get_checkpoint_state(str(folder))
        if state is not None:  # so that both steps are in the state file
            paths = list(state.all_model_checkpoint_paths)
            saver.recover_last_checkpoints(paths)
        saver.save(
            session,
            str(folder / "model.ckpt"),
            global_step=step,
            write_meta_graph=with_graph,
        )
