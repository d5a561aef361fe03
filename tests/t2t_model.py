"""A model of ours with the variables of a model of tensor2tensor's."""

import numpy as np

from relpos_tf.models import transformer
from relpos_tf.t2t import t2t_hparams
from relpos_tf.t2t import t2t_variables


def names(model, t2t_names):
    """Returns its names of every variable of ours, by our path."""
    paths = [variable.path for variable in model.variables]
    return t2t_variables.names_of(paths, model.hparams, t2t_names)


def load(variables, t2t, **changes):
    """Builds a model and sets its variables.

    Args:
        variables: dict of arrays by tensor2tensor's name.
        t2t: dict of tensor2tensor's hparams.
        **changes: our hparams to change after their translation.
    """
    shapes = {name: value.shape for name, value in variables.items()}
    scope, _ = t2t_variables.model_scope(shapes)
    size = t2t_variables.vocab_size(shapes, scope)
    hparams, _ = t2t_hparams.translate(t2t, size)
    model = transformer.Transformer(hparams.replace(**changes))
    used = names(model, variables)
    for variable in model.variables:
        parts = [variables[name] for name in used[variable.path]]
        variable.assign(np.concatenate(parts))
    return model
