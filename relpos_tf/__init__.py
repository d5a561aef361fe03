"""Machine translation with relative position representations.

Where to begin:

    relpos_tf.Translator.load(folder).translate(lines)   a trained model
    relpos_tf.load_model(run)                  its model, restored
    relpos_tf.Transformer                      the model, of hparams
    relpos_tf.RelativeMultiHeadAttention       attention for any Keras model
    relpos_tf.TransformerAttention             attention of the Transformer
    relpos_tf.layers.positions                 how positions take part in it
    relpos_tf.relative_attention               the paper's attention, a function
    relpos_tf.RelationAttention                attention over labelled graphs

Training and decoding are commands: `relpos-trainer --help` and
`relpos-decoder --help`. `hparam`, `registry` and the sets in `hparams` say what
is trained; docs/walkthrough.md leads through the rooms: `data`, `problems`,
`models`, `layers`, `training`, `decoding`, `export`, `t2t`, `comparison`,
`serving`.
"""

import importlib
import importlib.util

from relpos_tf.utils import extras
from relpos_tf.utils import saved_names

__version__ = "0.1.0"

# Imported when first used: `import relpos_tf` does not bring TensorFlow.
_LAZY = {
    "RelationAttention": "relpos_tf.layers.relations",
    "RelativeMultiHeadAttention": "relpos_tf.layers.keras_attention",
    "Transformer": "relpos_tf.models.transformer",
    "TransformerAttention": "relpos_tf.layers.attention",
    "Translator": "relpos_tf.decoding.translator",
    "load_model": "relpos_tf.decoding.loading",
    "relative_attention": "relpos_tf.layers.positions.relative",
}
# Packages that an installation of the layers may lack.
_NEEDS = {
    "RelationAttention": ("tensorflow",),
    "RelativeMultiHeadAttention": ("keras",),
    "Transformer": ("tensorflow",),
    "TransformerAttention": ("tensorflow",),
    "Translator": ("sentencepiece",),
    "load_model": ("tensorflow", "sentencepiece"),
    "relative_attention": ("tensorflow",),
}
__all__ = [*_LAZY]

saved_names.register()


def __getattr__(name):
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    extra = "translate" if name in ("Translator", "load_model") else "layers"
    with extras.imports(extra, f"relpos_tf.{name}"):
        module = importlib.import_module(_LAZY[name])
    return getattr(module, name)


def __dir__():
    """Lists the names that can be imported: help() would stop at others."""
    return sorted([*globals(), *filter(_can_be_imported, _LAZY)])


def _can_be_imported(name):
    packages = _NEEDS.get(name, ())
    return all(importlib.util.find_spec(package) for package in packages)
