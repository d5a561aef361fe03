"""Registered names, and registrations in a user's folder."""

import pathlib
import sys
import uuid

from absl.testing import absltest

from relpos_tf import errors
from relpos_tf import hparam
from relpos_tf import registry

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


class RegistryTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.things = registry.Registry("thing")

    def test_a_function_is_registered_under_its_name(self):
        @self.things.register
        def second():
            return 2

        @self.things.register
        def first():
            return 1

        self.assertEqual(self.things.names(), ["first", "second"])
        self.assertEqual(self.things.find("second")(), 2)
        self.assertEqual(second(), 2)

    def test_unknown_name_is_answered_with_the_known_ones(self):
        for name in ("beta", "alpha"):
            maker = lambda: None  # noqa: E731
            maker.__name__ = name
            self.things.register(maker)
        with self.assertRaisesRegex(
            errors.UserError, "Unknown thing `gamma`. Known: alpha, beta."
        ):
            self.things.find("gamma")()

    def test_a_name_that_is_taken_is_refused(self):
        def twin():
            return 1

        self.things.register(twin)
        with self.assertRaisesRegex(ValueError, "thing `twin` .* twice"):
            self.things.register(twin)
        self.assertEqual(self.things.find("twin")(), 1)


class ShippedTest(absltest.TestCase):
    def test_every_set_is_hparams(self):
        names = registry.list_hparams()
        self.assertContainsSubset(
            {"transformer_base", "transformer_relative_tiny"}, names
        )
        self.assertEqual(names, sorted(names))
        for name in names:
            self.assertIsInstance(registry.hparams(name), hparam.HParams)

    def test_problems_are_listed_in_order(self):
        names = registry.list_problems()
        self.assertContainsSubset({"translate_ende_phrases"}, names)
        self.assertEqual(names, sorted(names))

    def test_unknown_set_and_problem_list_the_known_ones(self):
        with self.assertRaisesRegex(
            errors.UserError,
            "Unknown hparams set `transformer_bse`. "
            "Did you mean transformer_base\\? Known: .*transformer_base, "
            ".*transformer_relative",
        ):
            registry.hparams("transformer_bse")
        with self.assertRaisesRegex(
            errors.UserError,
            "Unknown problem `translate_file`. Did you mean translate_files\\? "
            "Known: .*translate_ende_phrases.*translate_files",
        ):
            registry.problem("translate_file")

    def test_translate_files_needs_its_files(self):
        self.assertIn("translate_files", registry.list_problems())
        with self.assertRaisesRegex(errors.UserError, "--train_source"):
            registry.problem("translate_files")

    def test_importing_twice_registers_once(self):
        registry.import_hparams()
        registry.import_problems()
        before = registry.list_hparams(), registry.list_problems()
        registry.import_hparams()
        registry.import_problems()
        after = registry.list_hparams(), registry.list_problems()
        self.assertEqual(after, before)


class UsrDirTest(absltest.TestCase):
    def folder(self, text, **files):
        """Returns a folder with a unique name."""
        path = pathlib.Path(self.create_tempdir().full_path)
        path = path / f"mine_{uuid.uuid4().hex}"
        path.mkdir()
        (path / "__init__.py").write_text(text, encoding="utf-8")
        for name, content in files.items():
            (path / f"{name}.py").write_text(content, encoding="utf-8")
        self.addCleanup(
            lambda: [
                sys.modules.pop(name)
                for name in list(sys.modules)
                if path.name in name
            ]
        )
        return path

    def forget(self, name):
        self.addCleanup(registry._hparams._makers.pop, name, None)

    def test_a_users_set_is_found_by_name(self):
        self.forget("users_set")
        path = self.folder(USER_SET.format(name="users_set"), more="SIZE = 64")
        registry.import_usr_dir(str(path))
        self.assertIn("users_set", registry.list_hparams())
        self.assertEqual(registry.hparams("users_set").hidden_size, 64)

    def test_importing_twice_registers_once(self):
        self.forget("users_other_set")
        path = self.folder(
            USER_SET.format(name="users_other_set"), more="SIZE = 64"
        )
        registry.import_usr_dir(str(path))
        registry.import_usr_dir(f"{path}/")
        self.assertIn("users_other_set", registry.list_hparams())

    def test_a_shipped_name_cannot_be_taken(self):
        path = self.folder(
            USER_SET.format(name="transformer_base"), more="SIZE = 64"
        )
        with self.assertRaisesRegex(ValueError, "transformer_base.* twice"):
            registry.import_usr_dir(str(path))
        self.assertEqual(registry.hparams("transformer_base").hidden_size, 512)

    def test_a_folder_that_failed_can_be_tried_again(self):
        self.forget("users_third_set")
        path = self.folder("raise RuntimeError('not yet')")
        with self.assertRaisesRegex(RuntimeError, "not yet"):
            registry.import_usr_dir(str(path))
        (path / "more.py").write_text("SIZE = 64", encoding="utf-8")
        (path / "__init__.py").write_text(
            USER_SET.format(name="users_third_set"), encoding="utf-8"
        )
        registry.import_usr_dir(str(path))
        self.assertIn("users_third_set", registry.list_hparams())

    def test_two_folders_of_the_same_name_are_both_imported(self):
        self.forget("users_fourth_set")
        self.forget("users_fifth_set")
        first = self.folder(
            USER_SET.format(name="users_fourth_set"), more="SIZE = 64"
        )
        second = first.parent / "other" / first.name
        second.mkdir(parents=True)
        (second / "__init__.py").write_text(
            USER_SET.format(name="users_fifth_set"), encoding="utf-8"
        )
        (second / "more.py").write_text("SIZE = 32", encoding="utf-8")
        registry.import_usr_dir(str(first))
        registry.import_usr_dir(str(second))
        self.assertEqual(registry.hparams("users_fourth_set").hidden_size, 64)
        self.assertEqual(registry.hparams("users_fifth_set").hidden_size, 32)

    def test_folders_that_are_missing_or_no_package_are_refused(self):
        empty = self.create_tempdir().full_path
        for path in (empty, f"{empty}/missing"):
            with self.assertRaisesRegex(
                errors.UserError,
                f"--usr_dir must be a folder with an __init__.py.*{path}",
            ):
                registry.import_usr_dir(path)


if __name__ == "__main__":
    absltest.main()
