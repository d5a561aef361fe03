"""The names of our variables in the checkpoints of tensor2tensor.

A checkpoint of tensor2tensor names a variable by its scopes, stores
embeddings in shards, and holds the variables of training as well: slots of the
optimizer, counters, averages of losses. Every variable of the model
corresponds to exactly one of ours.
"""

import re
from collections.abc import Iterable
from collections.abc import Mapping

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf.models import checkpoints

_ATTENTION = {
    f"{name}/kernel": f"multihead_attention/{name}/kernel"
    for name in ("q", "k", "v", "output_transform")
} | {
    f"relative_positions_{name}": (
        "multihead_attention/dot_product_attention_relative/"
        f"relative_positions_{name}/embeddings"
    )
    for name in ("keys", "values")
}
_NORM = {"gamma": "layer_norm_scale", "beta": "layer_norm_bias"}
_SHARD = re.compile(r"([^/]+)/(symbol_modality_(\d+)_\d+)/[^/]+/weights_(\d+)")


def model_scope(names: Iterable[str]) -> tuple[str, list[str]]:
    """Separates the variables of the model from those of training.

    Returns:
        The scope of the model, usually "transformer"; and the sorted names of
        all variables outside the scope and of the slots inside it.

    Raises:
        UserError: there is not exactly one Transformer.
    """
    names = set(names)
    scopes = {
        name.split("/")[0]
        for name in names
        if re.match(r"[^/]+/body/(encoder|decoder)/layer_0/", name)
    }
    if len(scopes) != 1:
        raise errors.UserError(
            "Expected a checkpoint of one Transformer of tensor2tensor, with "
            "variables such as transformer/body/encoder/layer_0/ffn/conv1/"
            f"kernel. Received: {checkpoints.abridged(sorted(names))}."
        )
    scope = scopes.pop()
    # The name of a slot is the name of its variable and more: NAME/Adam.
    ignored = {
        name
        for name in names
        if not name.startswith(f"{scope}/") or name.rpartition("/")[0] in names
    }
    return scope, sorted(ignored)


def vocab_size(names: Iterable[str], scope: str) -> int:
    """Returns the rows of the embeddings, which are in their scope's name.

    Raises:
        UserError: there are no embeddings, or source and target have
            different vocabularies.
    """
    shards = filter(None, map(_SHARD.fullmatch, names))
    sizes = {shard[2]: int(shard[3]) for shard in shards if shard[1] == scope}
    if len(sizes) != 1:
        raise errors.UserError(
            "Expected a model with one vocabulary for source and target. "
            f"Received: {', '.join(sorted(sizes)) or 'none'}."
        )
    return next(iter(sizes.values()))


def names_of(
    variables: Iterable[str], hparams: hparam.HParams, names: Iterable[str]
) -> dict[str, list[str]]:
    """Returns the names of our variables in a checkpoint.

    Args:
        variables: Paths of our variables.
        hparams: `hparam.HParams` of our model.
        names: The names of all variables of the checkpoint. They determine
            the model's scope and the number of shards of each table.

    Returns:
        {our path: names}, with a name for each shard of a table.
    """
    names = list(names)
    scope, _ = model_scope(names)
    # Our tables, and the scope of each table in tensor2tensor.
    tables = {
        "source_embedding": "input_emb",
        "target_embedding": (
            "shared" if hparams.shared_embedding else "target_emb"
        ),
        "softmax": "softmax",
    }
    size = f"{hparams.vocab_size}_{hparams.hidden_size}"
    result = {}
    for path in variables:
        part, _, rest = path.removeprefix("transformer/").partition("/")
        if part not in tables:
            result[path] = [f"{scope}/body/{_body_name(part, rest)}"]
            continue
        stem = f"{scope}/symbol_modality_{size}/{tables[part]}/weights_"
        numbers = [
            int(shard[4])
            for shard in filter(None, map(_SHARD.fullmatch, names))
            if shard[0].startswith(stem)
        ]
        # All up to the last shard, so that a missing one is found. One of the
        # first len(numbers) + 1 is missing if the last number is larger.
        count = min(max(numbers, default=0), len(numbers)) + 1
        result[path] = [f"{stem}{i}" for i in range(count)]
    return result


def _body_name(part: str, rest: str) -> str:
    """Returns the name below `body` of one of our variables."""
    if part == "target_space_embedding":
        return f"{part}/kernel"
    if match := re.fullmatch(r"(source|target)_positions", part):
        side = {"source": "inputs", "target": "targets"}[match[1]]
        return f"{side}_positional_embedding"
    if match := re.fullmatch(r"(encoder|decoder)_norm", part):
        return f"{match[1]}/layer_prepostprocess/layer_norm/{_NORM[rest]}"
    stack, layer = part.split("_layer_")
    sublayer, _, rest = rest.partition("/")
    if match := re.fullmatch(r"(.+)_residual", sublayer):
        norm, _, weight = rest.partition("/")
        scope = {
            "before_norm": "layer_prepostprocess",
            "after_norm": "layer_postprocess",
        }[norm]
        sublayer, rest = match[1], f"{scope}/layer_norm/{_NORM[weight]}"
    else:
        rest = _ATTENTION.get(rest, rest)
    return f"{stack}/layer_{layer}/{sublayer}/{rest}"


def check_fit(
    variables: Mapping[str, tuple[int, ...]],
    used: Mapping[str, list[str]],
    shapes: Mapping[str, list[int]],
    ignored: Iterable[str],
) -> None:
    """Compares the variables of a checkpoint with those of the hparams.

    Args:
        variables: {our path: shape}, by the hparams.
        used: {our path: names}, by `names_of`.
        shapes: {name: shape} of the checkpoint.
        ignored: The names of the variables of training.

    Raises:
        UserError: a variable is missing, unexpected, or of another shape; the
            message names the first few.
    """
    problems = []
    for path, names in used.items():
        missing = [name for name in names if name not in shapes]
        problems += [f"{name} is missing" for name in missing]
        if missing:
            continue
        parts = [shapes[name] for name in names]
        shape = (sum(part[0] for part in parts), *parts[0][1:])
        if shape != variables[path]:
            problems.append(
                f"{names[0]} has shape {list(shape)}, and by hparams.json "
                f"{list(variables[path])}"
            )
    known = {name for names in used.values() for name in names}
    left = sorted(set(shapes) - known - set(ignored))
    problems += [f"{name} has no place in this model" for name in left]
    if problems:
        raise errors.UserError(
            "The checkpoint does not fit its hparams.json: "
            f"{checkpoints.abridged(problems)}."
        )
