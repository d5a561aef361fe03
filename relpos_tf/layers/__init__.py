"""The layers and the schemes of positions, for models of one's own.

`import relpos_tf.layers` makes every name below an attribute, as in
`relpos_tf.layers.Shaw`, and registers the classes with Keras: after it, a
`.keras` file that holds them can be loaded.

All run on TensorFlow; `RelativeMultiHeadAttention` runs on every backend of
Keras. Where Keras runs on JAX or PyTorch, this import brings that layer alone
and no TensorFlow; another name is imported when it is first used.
"""

import importlib
from typing import Any

from relpos_tf.utils import extras

# Public names by the modules of this package that define them.
_NAMES = {
    "keras_attention": ("RelativeMultiHeadAttention",),
    "attention": ("TransformerAttention",),
    "relations": ("RelationAttention",),
    "blocks": ("EncoderBlock", "DecoderBlock"),
    "sublayers": ("FeedForward", "Residual"),
    "projections": ("Projection", "LayerNorm"),
    "dropout": ("Dropout", "SymbolDropout"),
    "embeddings": (
        "TokenEmbedding",
        "TargetSpaceEmbedding",
        "LearnedPositions",
    ),
    "positions.scheme": ("Scheme",),
    "positions.shaw": (
        "Shaw",
        "relative_attention",
        "relative_attention_inner",
    ),
    "positions.bucketed": ("Bucketed",),
    "positions.alibi": ("Alibi",),
    "positions.rotary": ("Rotary",),
    "positions.kerple": ("Kerple",),
    "positions.fire": ("Fire",),
    "positions.transformer_xl": ("TransformerXL",),
    "positions.window": ("Window", "Direction"),
    "positions.additive": ("Additive", "FeatureWise"),
    "positions.head_window": ("HeadWindow",),
    "positions.localness": ("Localness",),
}
_MODULES = {name: module for module in _NAMES for name in _NAMES[module]}
_ON_EVERY_BACKEND = ("RelativeMultiHeadAttention",)


def __getattr__(name: str) -> Any:
    """Imports a name that the import of the package has left out."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extras.imports("layers", f"{__name__}.{name}"):
        module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    return getattr(module, name)


with extras.imports("layers", __name__):
    import keras

_is_on_tensorflow = keras.backend.backend() == "tensorflow"
__all__ = list(_MODULES if _is_on_tensorflow else _ON_EVERY_BACKEND)
for _name in __all__:
    globals()[_name] = __getattr__(_name)
