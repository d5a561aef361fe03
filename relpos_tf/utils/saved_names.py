"""The classes that saved Keras models name, and the modules that define them.

A `.keras` file names each class, such as `relpos_tf>Shaw`, and Keras finds a
class once its module was imported. To load a file, `import relpos_tf` is
enough, though it does not import the modules, which take seconds: the names
stand for objects that import a module when a file asks for its class.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys

_MODULES = {
    "layers.attention": ("TransformerAttention",),
    "layers.blocks": ("DecoderBlock", "EncoderBlock"),
    "layers.dropout": ("Dropout", "SymbolDropout"),
    "layers.embeddings": (
        "LearnedPositions",
        "TargetSpaceEmbedding",
        "TokenEmbedding",
    ),
    "layers.keras_attention": ("RelativeMultiHeadAttention",),
    "layers.positions.additive": ("Additive", "FeatureWise"),
    "layers.positions.alibi": ("Alibi",),
    "layers.positions.bucketed": ("Bucketed",),
    "layers.positions.head_window": ("HeadWindow",),
    "layers.positions.localness": ("Gaussians", "Localness"),
    "layers.positions.rotary": ("Rotary",),
    "layers.positions.shaw": ("Shaw",),
    "layers.positions.window": ("Direction", "Window"),
    "layers.projections": ("LayerNorm", "Projection"),
    "layers.relations": ("RelationAttention",),
    "layers.sublayers": ("FeedForward", "Residual"),
    "models.transformer": ("Transformer",),
}
MODULES = {
    name: f"relpos_tf.{module}"
    for module, names in _MODULES.items()
    for name in names
}


class _Unloaded:
    """Stands for a class whose module was not imported."""

    def __init__(self, name):
        self._name = name

    def load(self):
        """Imports the module; returns the class."""
        return getattr(importlib.import_module(MODULES[self._name]), self._name)

    def from_config(self, config):
        """Returns what the class makes of a config. Keras calls this."""
        return self.load().from_config(config)


class _Finder(importlib.abc.MetaPathFinder):
    """Registers the names as soon as Keras was imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            _register(module)

        spec.loader.exec_module = exec_module
        return spec


def register():
    """Registers the names with Keras, now or when Keras is imported."""
    if "keras" in sys.modules:
        _register(sys.modules["keras"])
    elif not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _register(keras):
    known = keras.saving.get_custom_objects()
    for name in MODULES:
        # A module that was imported has registered the class itself.
        known.setdefault(f"relpos_tf>{name}", _Unloaded(name))


def loaded(kind):
    """Returns the class of a registered object."""
    return kind.load() if isinstance(kind, _Unloaded) else kind
