"""Machine translation with relative position representations.

Where to begin:

    relpos_tf.Translator.load(folder).translate(lines)   a trained model
    relpos_tf.load_model(run)                  its model, restored
    relpos_tf.Transformer                      the model, of hparams
    relpos_tf.RelativeMultiHeadAttention       attention for any Keras model
    relpos_tf.TransformerAttention             attention of the Transformer
    relpos_tf.relative_attention               the paper's attention, a function
    relpos_tf.relative_attention_inner         its product with vectors of pairs
    relpos_tf.RelationAttention                attention over labelled graphs
    relpos_tf.layers                           all layers and schemes, for Keras

Training and decoding are commands: `relpos-trainer --help` and
`relpos-decoder --help`. `hparam`, `registry` and the sets in `hparams` say what
is trained; docs/walkthrough.md leads through the rooms: `data`, `problems`,
`models`, `layers`, `training`, `decoding`, `export`, `t2t`, `comparison`,
`serving`.
"""

import importlib
import importlib.util
import os
from typing import Any

from relpos_tf.utils import extras

__version__ = "0.1.0"
if importlib.util.find_spec("tf_keras") is None:
    # It would keep TensorFlow from saving and loading.
    os.environ.pop("TF_USE_LEGACY_KERAS", None)

# Imported when first used: `import relpos_tf` does not bring TensorFlow. The
# module that has the name, and the packages that an installation may lack.
_LAZY = {
    "RelationAttention": ("layers", ("tensorflow", "keras")),
    "RelativeMultiHeadAttention": ("layers", ("keras",)),
    "Transformer": ("models.transformer", ("tensorflow", "keras")),
    "TransformerAttention": ("layers", ("tensorflow", "keras")),
    "Translator": ("decoding.translator", ("sentencepiece",)),
    "load_model": ("decoding.loading", ("tensorflow", "sentencepiece")),
    "relative_attention": ("layers", ("tensorflow", "keras")),
    "relative_attention_inner": ("layers", ("tensorflow", "keras")),
}
__all__ = [*_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, packages = _LAZY[name]
    extra = "translate" if "sentencepiece" in packages else "layers"
    with extras.imports(extra, f"relpos_tf.{name}"):
        return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    """Lists the names that can be imported: help() would stop at others."""
    names = [
        name
        for name, (_, packages) in _LAZY.items()
        if all(map(importlib.util.find_spec, packages))
    ]
    return sorted([*globals(), *names])
