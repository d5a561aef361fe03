"""The package for Argos Translate, read as its client reads it.

The client is not installed here. `Client` repeats what it does with a package:
argostranslate 1.11.0, `package.Package`, `tokenizer.SentencePieceTokenizer`
and `translate.apply_packaged_translation`.
"""

import json
import shutil
import sys
import types
import zipfile
from unittest import mock

import sentencepiece
from absl.testing import parameterized

from relpos_tf.bin import export
from relpos_tf.decoding import ctranslate2_engine
from relpos_tf.export import folders as export_folders
from relpos_tf.models import run_dir
from relpos_tf.utils import files
from tests import ctranslate2_runs
from tests import folders
from tests import tiny_run
from tests.bin import calls
from tests.ctranslate2_runs import export_of
from tests.ctranslate2_runs import run_of

SEED = 17  # short translations without unknown tokens
# Each text with its sentences, which the client splits.
PARAGRAPHS = (
    ("twenty-one days",),
    (" twenty-one  days\t",),
    ("\u00a0twenty-one\u3000days\u200b \u2028",),
    ("",),
    (" \t",),
    ("Where is the station? ", "It is raining."),
    ("  Where is  the station?", " It is raining. ", ""),
    ("the_train\u2581leaves",),
    ("\u6771\u4eac \U0001f600 </s> <pad> <unk>",),
)


def setUpModule():
    ctranslate2_runs.skip_without_library()


def translator_of(folder):
    """Loads a model as the client does."""
    return ctranslate2_engine.package().Translator(
        str(folder), compute_type="auto"
    )


def search(translator, rows, **options):
    """Translates pieces with the client's settings."""
    return translator.translate_batch(
        rows,
        max_batch_size=32,
        batch_type="tokens",
        beam_size=4,
        num_hypotheses=4,
        length_penalty=0.2,
        return_scores=True,
        **options,
    )


class Client:
    """The client, with the package in `folder`."""

    options = types.MappingProxyType({"replace_unknowns": True})

    def __init__(self, folder):
        self.translator = translator_of(folder / "model")
        self.processor = sentencepiece.SentencePieceProcessor(
            model_file=str(folder / "sentencepiece.model")
        )

    def encode(self, sentences):
        return [self.processor.encode(one, out_type=str) for one in sentences]

    def decode(self, pieces):
        return self.processor.decode_pieces(pieces).replace("\u2581", " ")

    def translate(self, sentences):
        rows = self.encode(sentences)
        found = search(self.translator, rows, **self.options)
        texts = []
        for i in range(4):
            text = self.decode([p for one in found for p in one.hypotheses[i]])
            texts.append(text.replace("_", " ").removeprefix(" "))
        return texts


class Ours(Client):
    """Our engine of an export for CTranslate2, with the same settings."""

    options = types.MappingProxyType({})

    def __init__(self, folder):
        self.engine = ctranslate2_engine.CTranslate2Engine(folder)
        self.tokens = self.engine.tokenizer.pieces()
        self.translator = translator_of(folder)

    def encode(self, sentences):
        return [
            [self.tokens[i] for i in item.content[:-1]]
            for item in self.engine.items(sentences)
        ]

    def decode(self, pieces):
        return self.engine.tokenizer.decode(map(self.tokens.index, pieces))


class ArgosExportTest(folders.TestCase):
    def export(self, run, *flags):
        """Runs the command; returns its exit code and its message."""
        code, _, err = calls.execute(
            export.main,
            f"--output_dir={run}",
            f"--export_dir={self.folder / 'new'}",
            "--format=argos",
            *flags,
        )
        return code, err

    def test_client_translates_as_our_engine(self):
        code, err = self.export(run_of(seed=SEED), "--language_pair=en-de")
        self.assertEqual(code, 0, err)
        path = self.folder / "new" / "translate-en_de-1_0.argosmodel"
        self.assertEqual(list(path.parent.iterdir()), [path])
        with zipfile.ZipFile(path) as package:
            package.extractall(self.folder / "installed")
        (folder,) = (self.folder / "installed").iterdir()
        self.assertEqual(folder.name, path.stem)
        self.assertEqual(
            json.loads((folder / "metadata.json").read_text("ascii")),
            {
                "package_version": "1.0",
                "argos_version": "1.9.0",
                "from_code": "en",
                "from_name": "English",
                "to_code": "de",
                "to_name": "German",
            },
        )
        # The client replaces unknown tokens by source pieces, no other ones.
        config = json.loads((folder / "model" / "config.json").read_text())
        self.assertEqual(config["unk_token"], "<unk>")
        client, ours = Client(folder), Ours(export_of(seed=SEED))
        found = [client.translate(one) for one in PARAGRAPHS]
        self.assertEqual(found, [ours.translate(one) for one in PARAGRAPHS])
        # Blanks change nothing.
        self.assertEqual(found[1:3], found[:1] * 2)
        self.assertEqual(found[3:5], [[""] * 4] * 2)
        self.assertEqual(found[6], found[5])
        self.assertGreater(len({text for row in found for text in row}), 8)

    def test_languages_are_those_of_the_run(self):
        run = self.folder / "run"
        shutil.copytree(run_of(), run)
        run_dir.RunDir(run).write_problem(
            tiny_run.PROBLEM
            | {
                "source_language": "nb",
                "target_language": "en",
                "tokenizer_sha256": files.sha256(run / "tokenizer.model"),
            }
        )
        code, err = self.export(run)
        self.assertEqual(code, 0, err)
        path = self.folder / "new" / "translate-nb_en-1_0.argosmodel"
        with zipfile.ZipFile(path) as package:
            content = package.read(f"{path.stem}/metadata.json")
        self.assertEqual(
            json.loads(content)["from_name"], "Norwegian Bokm\xe5l"
        )
        self.assertTrue(content.isascii())

    @parameterized.parameters(
        ("", "two languages --language_pair=en-de ''"),
        ("--language_pair=en", "two languages ''"),
        ("--language_pair=en-source", "two languages 'source'"),
    )
    def test_refusals_before_any_work(self, flags, words):
        self.assert_refused(run_of(), flags.split(), words)

    def test_models_that_the_client_cannot_hold(self):
        flags = ["--language_pair=en-de"]
        self.assert_refused(tiny_run.path(), flags, "leaves out absolute")
        run = run_dir.RunDir(self.folder / "t2t")
        run.write_hparams(run_dir.RunDir(run_of()).read_hparams())
        (run.path / "tokenizer.subwords").write_text("'a_'\n")
        self.assert_refused(run.path, flags, "SentencePiece subwords")
        with mock.patch.dict(sys.modules, {"babel": None}):
            self.assert_refused(run_of(), flags, "babel relpos_tf[argos]")

    def assert_refused(self, run, flags, words):
        with mock.patch.object(
            export_folders, "load", side_effect=AssertionError
        ):
            code, err = self.export(run, *flags)
        self.assertEqual(code, 1)
        self.assertLen(err.splitlines(), 1)
        for word in words.split():
            self.assertIn(word, err)
        self.assertFalse((self.folder / "new").exists())
