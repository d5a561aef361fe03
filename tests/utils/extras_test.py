"""Missing packages of an extra are named, with the way to install them."""

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf.utils import extras


class ExtrasTest(absltest.TestCase):
    def test_a_missing_package_is_an_import_error_and_the_user_can_mend_it(
        self,
    ):
        for kind in (ImportError, errors.UserError):
            with self.assertRaisesRegex(
                kind,
                r"no_such_package, which drawing needs.*pip install "
                r"'relpos_tf\[plots\]' \(in a clone: '\.\[plots\]'\)$",
            ) as caught:
                with extras.imports("plots", "drawing"):
                    import no_such_package  # noqa: F401
        self.assertEqual(caught.exception.name, "no_such_package")
