"""Missing packages of an extra are named, with the way to install them."""

import importlib.metadata
import pathlib
from unittest import mock

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.utils import extras

ROOT = pathlib.Path(__file__).resolve().parents[2]


class ExtrasTest(absltest.TestCase):
    def test_a_missing_package_is_an_import_error_and_the_user_can_mend_it(
        self,
    ):
        for kind in (ImportError, errors.UserError):
            with self.assertRaisesRegex(
                kind, r"no_such_package, which drawing needs.*\[plots\]'$"
            ) as caught:
                with extras.imports("plots", "drawing"):
                    import no_such_package  # noqa: F401
        self.assertEqual(caught.exception.name, "no_such_package")

    def test_an_installation_is_named_by_its_name_and_a_clone_by_its_folder(
        self,
    ):
        missing = importlib.metadata.PackageNotFoundError("relpos_tf")
        for found, expected in (
            ({}, "pip install 'relpos_tf[plots]'"),
            ({"side_effect": missing}, f"pip install -e '{ROOT}[plots]'"),
        ):
            with mock.patch.object(importlib.metadata, "distribution", **found):
                self.assertEqual(extras.how_to_install("plots"), expected)
