"""Machine translation with relative position representations.

`hparam`, `registry` and the sets in `hparams` say what to train; `problems`,
`tokenizer`, `records` and `batching` turn text into batches; `layers` and
`models.transformer` are the model; `training` updates it, with `checkpoints`
and `run_dir` for its files; `beam_search`, `decoding` and `translator` use it;
`evaluation` and `metrics` score it, `export` makes a SavedModel of it,
`t2t_import` makes a run of a tensor2tensor model, and `bin` holds the commands.
"""

import importlib

__version__ = "0.1.0"

# Imported when first used: `import relpos_tf` does not bring TensorFlow.
_LAZY = {
    "Translator": "relpos_tf.decoding.translator",
    "load_model": "relpos_tf.decoding.loading",
}


def __getattr__(name):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__():
    return sorted([*globals(), *_LAZY])
