"""Tests that register names of their own."""

import sys

from relpos_tf import hparam
from relpos_tf import registry


def forget_after(test) -> None:
    """Lets a test's names and folders be forgotten at its end."""
    registry.list_hparams()  # The shipped ones stay.
    registry.list_problems()
    registries = registry._hparams, registry._problems, registry._schemes
    for names in (
        *(one._makers for one in registries),
        registry.usr_dirs,
        hparam.OWN_TYPES,
    ):
        test.addCleanup(_restore, names, names.copy())


def _restore(names, before):
    for module in [m for m in sys.modules if m.startswith("relpos_tf_usr_")]:
        del sys.modules[module]
    names.clear()
    add = names.update if isinstance(names, dict) else names.extend
    add(before)
