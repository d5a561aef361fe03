"""sacreBLEU's test sets by name, without a network."""

import contextlib
import pathlib
import urllib.error
import urllib.request
from unittest import mock

import sacrebleu

from relpos_tf import errors
from relpos_tf.problems import sacrebleu_sets
from tests import folders

NAME = "multi30k/2016"
# Blanks at the end, and a character that is no line end for sacreBLEU's files.
SOURCE = "A dog \nTwo dogs\u2028and a cat\n"
REFERENCE = "Ein Hund\nZwei Hunde und eine Katze  \n"


def fill(folder, source=SOURCE, reference=REFERENCE, name=NAME):
    """Lays the files of a set where sacreBLEU keeps them."""
    made = pathlib.Path(folder, name)
    made.mkdir(parents=True)
    start = f"{name.replace('/', '_')}.en-de"
    for field, content in (("src", source), ("ref", reference)):
        (made / f"{start}.{field}").write_text(content, "utf-8")
    return made


@contextlib.contextmanager
def sacrebleu_folder(folder, name=NAME):
    """Lets sacreBLEU keep a set in a folder, with no network.

    sacreBLEU reads its environment variable only when it is imported.
    """
    dataset = sacrebleu.DATASETS[name]
    made = pathlib.Path(folder, name)
    with (
        mock.patch.object(dataset, "_outdir", str(made)),
        mock.patch.object(dataset, "_rawdir", str(made / "raw")),
        mock.patch.object(sacrebleu_sets, "SACREBLEU_DIR", str(folder)),
        mock.patch.object(
            urllib.request,
            "urlopen",
            side_effect=urllib.error.URLError("no network"),
        ) as urlopen,
    ):
        yield urlopen


class SacrebleuSetsTest(folders.TestCase):
    def setUp(self):
        super().setUp()
        self.urlopen = self.enter_context(sacrebleu_folder(self.folder))

    def test_files_that_are_there_are_read_by_line_feeds(self):
        made = fill(self.folder)
        found = sacrebleu_sets.load(NAME, "en-de")
        self.assertEqual(found.name, NAME)
        self.assertEqual(found.sources, ["A dog ", "Two dogs\u2028and a cat"])
        self.assertEqual(
            found.references, ["Ein Hund", "Zwei Hunde und eine Katze  "]
        )
        self.assertEqual(found.reference_path, made / "multi30k_2016.en-de.ref")
        self.assertEmpty(self.urlopen.mock_calls)

    def test_what_cannot_be_downloaded_is_told_with_what_to_do(self):
        message = (
            f"-t {NAME} -l en-de --echo .*/{NAME} to {self.folder}/{NAME}."
        )
        # sacreBLEU calls sys.exit for a wrong checksum.
        for effect in (self.urlopen.side_effect, SystemExit(1)):
            self.urlopen.side_effect = effect
            with self.assertRaisesRegex(errors.UserError, message):
                sacrebleu_sets.load(NAME, "en-de")

    def test_unknown_names_and_languages_are_refused(self):
        for name, pair, message in (
            ("multi30k/2o16", "en-de", "Did you mean multi30k/2016"),
            ("zzz", "en-de", "`sacrebleu --list` shows them. Received: 'zzz'"),
            (NAME, "de-en", "en-fr, en-de, en-cs. Received: de-en."),
            (NAME, "-", "en-cs. Received: none. Give --language_pair"),
        ):
            with self.assertRaisesRegex(errors.UserError, message):
                sacrebleu_sets.load(name, pair)
        self.assertEmpty(list(self.folder.iterdir()))

    def test_several_references_are_there_for_each_line(self):
        made = fill(self.folder)
        (made / "multi30k_2016.en-de.ref-B").write_text("B\nb\n")
        fields = ["src", "ref", "ref:B"]
        with mock.patch.object(
            sacrebleu.DATASETS[NAME], "fieldnames", lambda pair: fields
        ):
            found = sacrebleu_sets.load(NAME, "en-de")
        first, second = REFERENCE.splitlines()
        self.assertEqual(found.references, [(first, "B"), (second, "b")])
        self.assertEndsWith(str(found.reference_path), "en-de.ref-B")
