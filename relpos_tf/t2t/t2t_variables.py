"""Which variable of tensor2tensor is which of ours.

Its checkpoints name a variable by the scopes it was made in, keep embeddings
in shards, and hold what training left: slots of the optimizer, counters,
averages of losses. Every variable of the model has exactly one place here.
"""

import re
from collections.abc import Iterable
from collections.abc import Mapping

from relpos_tf import errors
from relpos_tf import hparam

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
    """Tells the variables of the model from those of training.

    Returns:
        The scope of the model, usually "transformer"; and the sorted names of
        all variables outside it, and of the slots inside it.

    Raises:
        UserError: there is no Transformer in it.
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
            f"kernel. Received: {_some(sorted(names))}."
        )
    scope = scopes.pop()
    # A slot is named after its variable: NAME/Adam.
    ignored = {
        name
        for name in names
        if not name.startswith(f"{scope}/") or name.rpartition("/")[0] in names
    }
    return scope, sorted(ignored)


def vocab_size(names: Iterable[str], scope: str) -> int:
    """Returns the rows of the embeddings, which their scope tells.

    Raises:
        UserError: there are none, or source and target have a vocabulary
            each.
    """
    shards = filter(None, map(_SHARD.fullmatch, names))
    found = {shard[2]: int(shard[3]) for shard in shards if shard[1] == scope}
    if len(found) != 1:
        raise errors.UserError(
            "Expected a model with one vocabulary for source and target. "
            f"Received: {', '.join(sorted(found)) or 'none'}."
        )
    return next(iter(found.values()))


def names_of(
    variables: Iterable[str], hparams: hparam.HParams, names: Iterable[str]
) -> dict[str, list[str]]:
    """Returns where each of our variables is in a checkpoint.

    Args:
        variables: Paths of our variables.
        hparams: `hparam.HParams` of our model.
        names: All variables of the checkpoint; they tell the name of the
            model's scope and how many shards a table has.

    Returns:
        {our path: its names}, more than one where a table is in shards.
    """
    names = list(names)
    scope, _ = model_scope(names)
    # Ours, and under what it keeps the same table.
    tables = {
        "source_embedding": "input_emb",
        "target_embedding": (
            "shared" if hparams.shared_embedding else "target_emb"
        ),
        "softmax": "softmax",
    }
    size = f"{hparams.vocab_size}_{hparams.hidden_size}"
    found = {}
    for path in variables:
        part, _, rest = path.removeprefix("transformer/").partition("/")
        if part not in tables:
            found[path] = [f"{scope}/body/{_body_name(part, rest)}"]
            continue
        stem = f"{scope}/symbol_modality_{size}/{tables[part]}/weights_"
        numbers = [
            int(shard[4])
            for shard in filter(None, map(_SHARD.fullmatch, names))
            if shard[0].startswith(stem)
        ]
        # Up to the last, so that one that is not there is missed; it is among
        # the first as many as there are, and one more.
        count = min(max(numbers, default=0), len(numbers)) + 1
        found[path] = [f"{stem}{i}" for i in range(count)]
    return found


def _body_name(part: str, rest: str) -> str:
    """Returns its name of one of our variables below `body`."""
    if part == "target_space_embedding":
        return f"{part}/kernel"
    if match := re.fullmatch(r"(source|target)_positions", part):
        side = {"source": "inputs", "target": "targets"}[match[1]]
        return f"{side}_positional_embedding"
    if match := re.fullmatch(r"(encoder|decoder)_norm", part):
        return f"{match[1]}/layer_prepostprocess/layer_norm/{_NORM[rest]}"
    stack, layer = re.fullmatch(r"(encoder|decoder)_layer_(\d+)", part).groups()
    sublayer, _, rest = rest.partition("/")
    if match := re.fullmatch(r"(.+)_residual", sublayer):
        place, _, weight = rest.partition("/")
        scope = {
            "before_norm": "layer_prepostprocess",
            "after_norm": "layer_postprocess",
        }[place]
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
    """Compares what the checkpoint holds with what the hparams announce.

    Raises:
        UserError: a variable is missing, left over, or of another shape; the
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
            f"The checkpoint does not fit its hparams.json: {_some(problems)}."
        )


def _some(items: list[str]) -> str:
    """Returns the first few of a list, and how many more there are."""
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return "; ".join(items[:5]) + more
