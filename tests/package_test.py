"""The public names of the package, also where libraries are missing."""

from absl.testing import parameterized

import relpos_tf
from tests.bin import calls


class PublicNamesTest(parameterized.TestCase):
    @parameterized.parameters(*relpos_tf.__all__)
    def test_public_names_are_there_and_described(self, name):
        self.assertIn(name, dir(relpos_tf))
        self.assertIn(f"relpos_tf.{name}", relpos_tf.__doc__)
        found = getattr(relpos_tf, name)
        self.assertEqual(found.__name__, name)
        self.assertNotEmpty(found.__doc__)


class MissingLibraryTest(parameterized.TestCase):
    @parameterized.parameters("keras", "tensorflow")
    def test_the_package_is_imported_and_names_what_is_missing(self, library):
        code = f"""
import sys
sys.modules[{library!r}] = None  # no import finds it
import relpos_tf
from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf import registry
print(relpos_tf.__version__, hparam.HParams().hidden_size)
print("Transformer" in dir(relpos_tf))
for name in ("RelativeMultiHeadAttention", "Transformer", "load_model"):
    try:
        getattr(relpos_tf, name)
    except ImportError as error:
        print(error)
try:
    import relpos_tf.layers
except ImportError as error:
    print(error)
"""
        done = calls.python("-c", code)
        out = done.stdout.splitlines()
        self.assertEqual(
            out[:2], [f"{relpos_tf.__version__} 512", "False"], done
        )
        self.assertLen(out, 6)
        for line in out[2:]:
            self.assertRegex(
                line,
                f"^Expected the package {library}, which .* needs. "
                "Received: none. Install it: pip install ",
            )

    @parameterized.parameters(False, True)
    def test_keras_2_is_asked_for_only_where_it_is_installed(self, is_there):
        folder = self.create_tempdir()
        if is_there:
            folder.create_file("tf_keras.py")
        code = "import os, relpos_tf; print(os.environ['TF_USE_LEGACY_KERAS'])"
        done = calls.python(
            "-c",
            f"import sys; sys.path.append({folder.full_path!r}); {code}",
            TF_USE_LEGACY_KERAS="1",
        )
        self.assertEqual(done.stdout, "1\n" if is_there else "", done.stderr)
