"""Registered names, and registrations in a user's folder."""

import os
import pathlib
import uuid
from unittest import mock

from absl.testing import parameterized

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf import registry
from tests import registered
from tests.bin import calls

USER_SET = '''
from relpos_tf import registry
from . import more

@registry.register_hparams
def {name}():
    """A set of the user's own."""
    return registry.hparams("transformer_tiny").replace(
        hidden_size=more.SIZE
    )
'''


class ShippedTest(parameterized.TestCase):
    def test_a_name_that_is_none_brings_the_known_ones(self):
        for find, name, known in (
            (registry.hparams, "transformer_bse", "transformer_base"),
            (registry.problem, "translate_file", "translate_files"),
        ):
            words = f"`{name}`. Did you mean {known}\\? Known: .*{known}"
            with self.assertRaisesRegex(errors.UserError, words):
                find(name)
        with self.assertRaisesRegex(errors.UserError, "--train_source"):
            registry.problem("translate_files")

    def test_the_folder_of_the_sets_may_be_imported_by_its_own_name(self):
        code = "import hparams; from relpos_tf import registry as r; "
        code += "print(r.hparams('transformer_big').num_heads)"
        done = calls.python("-c", code)
        self.assertEqual(done.stdout, "16\n", done.stderr)


class UsrDirTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        registered.forget_after(self)

    def folder(self, name, text=USER_SET, size=64):
        """Returns a folder with a unique name that registers a set."""
        path = pathlib.Path(self.create_tempdir().full_path)
        path = path / f"mine_{uuid.uuid4().hex}"
        path.mkdir()
        (path / "__init__.py").write_text(text.format(name=name))
        (path / "more.py").write_text(f"SIZE = {size}")
        return path

    def test_a_users_set_is_found_by_name_and_registered_once(self):
        path = self.folder("users_set")
        link = pathlib.Path(self.create_tempdir().full_path) / "link"
        link.symlink_to(path)
        home = {"HOME": str(path.parent)}
        with mock.patch.dict(os.environ, home):
            for name in (path, f"{path}/", link, f"~/{path.name}"):
                registry.import_usr_dir(str(name))
            registry.import_usr_dir(os.path.relpath(path))
        self.assertIn("users_set", registry.list_hparams())
        self.assertEqual(registry.hparams("users_set").hidden_size, 64)

    @parameterized.parameters(
        ("transformer_base", "hparams"),
        ("translate_files", "problem"),
        ("dot_product", "self_attention_type"),
        ("same", "self_attention_type"),
    )
    def test_a_shipped_name_cannot_be_taken(self, name, kind):
        text = f"""from relpos_tf import registry
@registry.register_{kind}
def {name}(*args):
    pass
"""
        path = self.folder(name, text)
        with self.assertRaisesRegex(
            errors.UserError, f"{path}/__init__.py, line 2: .*`{name}`.* twice"
        ):
            registry.import_usr_dir(str(path))
        self.assertEqual(registry.hparams("transformer_base").hidden_size, 512)
        self.assertLess(hparam.OWN_TYPES.count(name), 2)

    @parameterized.parameters(
        ("def (", r": SyntaxError: .*__init__\.py, line 1"),
        ("\nimport nothing_of_the_kind", ", line 2: .*nothing_of_the_kind"),
        ("from . import more\nmore.f()", ", line 2: .*'f'"),
    )
    def test_an_error_in_a_folder_names_its_line(self, text, words):
        path = self.folder("", text)
        with self.assertRaisesRegex(errors.UserError, f"{path}.*{words}"):
            registry.import_usr_dir(str(path))
        self.assertEmpty(registry.usr_dirs)

    @parameterized.parameters(
        ("hparams", "", "{{}}", "HParams"),
        ("problem", "", "None", "Problem"),
        ("self_attention_type", "hparams, is_encoder", "None", "Scheme"),
    )
    def test_a_function_that_returns_another_kind_is_refused(
        self, kind, args, value, wanted
    ):
        text = f"""import functools
from relpos_tf import registry
@registry.register_{kind}
@functools.cache
def users_own({args}):
    return {value}
"""
        path = self.folder("users_own", text)
        registry.import_usr_dir(str(path))
        make = getattr(registry, kind)
        given = (hparam.HParams(), True) if "attention" in kind else ()
        with self.assertRaisesRegex(
            errors.UserError, f"`users_own`, .*{kind[:4]}.* returns a {wanted}"
        ):
            make("users_own", *given)

    def test_a_folder_that_failed_can_be_tried_again(self):
        path = self.folder("users_third_set", "raise RuntimeError('not yet')")
        with self.assertRaisesRegex(errors.UserError, "RuntimeError: not yet"):
            registry.import_usr_dir(str(path))
        text = USER_SET.format(name="users_third_set")
        (path / "__init__.py").write_text(text)
        registry.import_usr_dir(str(path))
        self.assertIn("users_third_set", registry.list_hparams())

    def test_two_folders_of_the_same_name_are_both_imported(self):
        first = self.folder("users_fourth_set")
        second = self.folder("users_fifth_set", size=32)
        other = second.parent / first.name
        registry.import_usr_dir(str(first))
        registry.import_usr_dir(str(second.rename(other)))
        self.assertEqual(registry.hparams("users_fourth_set").hidden_size, 64)
        self.assertEqual(registry.hparams("users_fifth_set").hidden_size, 32)

    def test_the_checksum_of_the_code_has_the_users_folder(self):
        sums = [registry.sources()]
        for name in ("users_set", "users_other_set"):
            registry.import_usr_dir(str(self.folder(name)))
            sums.append(registry.sources())
        self.assertLen({*sums}, 3)

    def test_folders_that_are_missing_or_no_package_are_refused(self):
        empty = self.create_tempdir().full_path
        for path in (empty, f"{empty}/missing", __file__, "~nobody/x", "a,b"):
            with self.assertRaisesRegex(
                errors.UserError,
                f"--usr_dir must be a folder with an __init__.py.*{path}",
            ):
                registry.import_usr_dir(path)
