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

# The module of this package that defines a name.
_MODULES = {
    "RelativeMultiHeadAttention": "keras_attention",
    "TransformerAttention": "attention",
    "RelationAttention": "relations",
    "EncoderBlock": "blocks",
    "DecoderBlock": "blocks",
    "FeedForward": "sublayers",
    "Residual": "sublayers",
    "Projection": "projections",
    "LayerNorm": "projections",
    "Dropout": "dropout",
    "SymbolDropout": "dropout",
    "TokenEmbedding": "embeddings",
    "TargetSpaceEmbedding": "embeddings",
    "LearnedPositions": "embeddings",
    "Scheme": "positions.scheme",
    "Shaw": "positions.shaw",
    "Bucketed": "positions.bucketed",
    "Alibi": "positions.alibi",
    "Rotary": "positions.rotary",
    "Window": "positions.window",
    "Direction": "positions.window",
    "Additive": "positions.additive",
    "FeatureWise": "positions.additive",
    "HeadWindow": "positions.head_window",
    "Localness": "positions.localness",
    "relative_attention": "positions.shaw",
}
_ON_EVERY_BACKEND = ("RelativeMultiHeadAttention",)


def __getattr__(name: str) -> Any:
    """Imports a name that the import of the package has left out."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extras.imports("layers", f"{__name__}.{name}"):
        module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    return getattr(module, name)


def _names_to_import() -> list[str]:
    with extras.imports("layers", __name__):
        import keras
    on_tensorflow = keras.backend.backend() == "tensorflow"
    return list(_MODULES if on_tensorflow else _ON_EVERY_BACKEND)


__all__ = _names_to_import()
for _name in __all__:
    globals()[_name] = __getattr__(_name)
