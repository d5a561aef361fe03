"""Names of hparams sets, problems and kinds of self-attention.

The library looks each of them up here by its name; the lookup imports
the modules that come with the package. Modules of a user (`--usr_dir`)
register with the same decorators.
"""

import hashlib
import importlib
import importlib.util
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any
from typing import Generic
from typing import TypeVar

from relpos_tf import errors
from relpos_tf import hparam

_SETS = "relpos_tf.hparams"
# In docstrings of sets, each up to its first comma or bracket.
_FACTS = re.compile(r"\b(Cost|Score)s?\b[^:.]*: (.+?)(?: \(|[,;.] |\.?$)")
Made = TypeVar("Made")


class Registry(Generic[Made]):
    """Functions by name.

    Args:
        kind: str. What is registered, for messages, as in "hparams set".
        makes: str. The name of the class that the functions return.
        load: Imports what the package registers, when names are looked up.
    """

    def __init__(self, kind: str, makes: str, load: Callable[[], None]):
        self._kind, self._makes, self._load = kind, makes, load
        self._makers: dict[str, Callable[..., Made]] = {}

    def register(self, maker: Callable[..., Made]) -> Callable[..., Made]:
        """Registers a function under its own name; refuses a second one."""
        name = maker.__name__
        if name in self._makers:
            raise ValueError(f"The {self._kind} `{name}` is registered twice.")
        self._makers[name] = maker
        return maker

    def make(self, name: str, *args: Any) -> Made:
        """Returns what the function makes that is registered as `name`.

        Raises:
            UserError: there is none, or it makes something else.
        """
        known = self.names()
        if name not in known:
            raise errors.UserError(
                f"Unknown {self._kind} `{name}`."
                f"{errors.did_you_mean(name, known)} "
                f"Known: {', '.join(known)}."
            )
        made = self._makers[name](*args)
        # By name: the modules of the classes are not light.
        if self._makes not in [one.__name__ for one in type(made).__mro__]:
            raise errors.UserError(
                f"Expected that the function `{name}`, registered as "
                f"{self._kind}, returns a {self._makes}. Received: {made!r}."
            )
        return made

    def names(self) -> list[str]:
        """Returns the registered names, sorted."""
        self._load()
        return sorted(self._makers)


def import_hparams() -> None:
    """Imports the shipped hparams sets, once.

    `setup.py` installs the repository's folder `hparams/` as the subpackage
    `relpos_tf.hparams`. In a checkout that was never installed, the folder
    beside the package is loaded under that name.
    """
    if importlib.util.find_spec(_SETS) is None:
        _load(_SETS, pathlib.Path(__file__).resolve().parents[1] / "hparams")
    importlib.import_module(_SETS)


def about_hparams(name: str) -> str:
    """Returns the size of a set and, of its docstring, purpose, cost and score.

    Costs and scores that are the same for all sets of a module are in that of
    the module.
    """
    made, maker = hparams(name), _hparams._makers[name]
    what = " ".join((maker.__doc__ or "").split("\n\n")[0].split())
    docs = f"{maker.__doc__} {sys.modules[maker.__module__].__doc__}"
    found = _FACTS.findall(" ".join(docs.split()))
    facts = [f"{k}: {v}." for k, v in sorted(dict(reversed(found)).items())]
    encoder, decoder = made.encoder_layers, made.decoder_layers
    size = f"{encoder} + {decoder} layers of {made.hidden_size}."
    return " ".join([what, size, *facts])


def import_problems() -> None:
    """Imports the shipped problems, once."""
    for name in "translate", "algorithmic":
        importlib.import_module(f"relpos_tf.problems.{name}")


_hparams = Registry[hparam.HParams]("hparams set", "HParams", import_hparams)
_problems = Registry[Any]("problem", "Problem", import_problems)
_schemes = Registry[Any]("self_attention_type", "Scheme", lambda: None)
register_hparams = _hparams.register
register_problem = _problems.register
hparams, list_hparams = _hparams.make, _hparams.names
problem, list_problems = _problems.make, _problems.names
self_attention_type = _schemes.make
# The folders that `import_usr_dir` has imported. Processes that this one starts
# on a run import them as well.
usr_dirs: list[str] = []


def register_self_attention_type(
    maker: Callable[[hparam.HParams, bool], Any],
) -> Callable[[hparam.HParams, bool], Any]:
    """Registers a kind of self-attention, a value of `self_attention_type`.

    Args:
        maker: A function of the hparams of a stack and of whether it is the
            encoder, which returns a `layers.positions.scheme.Scheme`.
    """
    if maker.__name__ in ("same", *hparam.SELF_ATTENTION_TYPES):
        raise ValueError(f"The name `{maker.__name__}` is registered twice.")
    _schemes.register(maker)
    hparam.OWN_TYPES.append(maker.__name__)
    return maker


def import_usr_dir(path: str) -> None:
    """Imports a folder of the user's own registrations, as T2T does.

    Its module has the same name in each process.

    Args:
        path: str. A folder with an `__init__.py`.

    Raises:
        UserError: there is no such folder, or no `__init__.py` in it, or it
            cannot be imported; the message names the line.
    """
    folder = pathlib.Path(os.path.expanduser(path)).resolve()
    if not (folder / "__init__.py").is_file():
        raise errors.UserError(
            "--usr_dir must be a folder with an __init__.py. "
            f"Received: {path!r}."
        )
    checksum = hashlib.sha256(bytes(folder)).hexdigest()
    name = f"relpos_tf_usr_{checksum[:16]}_{folder.name}"
    if name not in sys.modules:
        import_hparams()
        import_problems()
        try:
            _load(name, folder)
        except Exception as error:
            del sys.modules[name]  # a second import must begin anew
            where = path
            for frame in traceback.extract_tb(error.__traceback__):
                if frame.filename.startswith(f"{folder}/"):
                    where = f"{frame.filename}, line {frame.lineno}"
            raise errors.UserError(
                f"{where}: {type(error).__name__}: {error}"
            ) from error
    if path not in usr_dirs:
        usr_dirs.append(path)


def sources() -> str:
    """Returns a checksum of the code: the package, its sets, and --usr_dir."""
    import_hparams()
    sets = sys.modules[_SETS].__path__[0]
    files = {  # Where a folder lies, inside another or not, does not matter.
        (path.name, path.read_bytes())
        for folder in (os.path.dirname(__file__), sets, *usr_dirs)
        for path in pathlib.Path(os.path.expanduser(folder)).rglob("*.py")
    }
    return hashlib.sha256(repr(sorted(files)).encode()).hexdigest()


def _load(name: str, folder: pathlib.Path) -> None:
    """Imports the package in `folder` under another name."""
    spec: Any = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
