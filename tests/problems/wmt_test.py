"""Tests of WMT 2014, with archives of the real layout and a line or two."""

import io
import pathlib
import tarfile
import tempfile

import sacrebleu.dataset
from absl.testing import parameterized

from relpos_tf.problems import corpora as corpora_lib
from relpos_tf.problems import wmt


def write_archives(folder, corpora):
    """Writes each corpus's archive; every line says where it is from."""
    members = {}
    for corpus in corpora:
        for side in (corpus.source, corpus.target):
            members.setdefault(side.remote.name, []).append(side.member)
    for name, names in members.items():
        with tarfile.open(folder / name, "w") as archive:
            for member in names:
                line = f"{member}\n"
                info = tarfile.TarInfo(member)
                info.size = len(line)
                archive.addfile(info, io.BytesIO(line.encode()))


class WmtTest(parameterized.TestCase):
    @parameterized.parameters(("de", 3), ("fr", 5))
    def test_training_reads_both_sides_of_every_corpus(self, target, number):
        corpora = wmt.splits(target)["train"]
        self.assertLen(corpora, number)
        plain = [c for c in corpora if not c.source.member.endswith(".gz")]
        with tempfile.TemporaryDirectory() as folder:
            write_archives(pathlib.Path(folder), plain)
            pairs = list(corpora_lib.read(plain, folder))
        for source, reference in pairs:
            self.assertEqual(source.removesuffix("en") + target, reference)
            self.assertIn(f"{target}-en.en", source)
        self.assertLen(set(pairs), len(plain))

    @parameterized.parameters("de", "fr")
    def test_test_sets_are_those_of_sacrebleu(self, target):
        for name, (corpus,) in (
            ("wmt13", wmt.splits(target)["dev"]),
            ("wmt14/full", wmt.splits(target)["test"]),
        ):
            known = sacrebleu.dataset.DATASETS[name]
            self.assertEqual(
                known.langpairs[f"en-{target}"],
                [corpus.source.member, corpus.target.member],
            )
            self.assertEqual(known.data, [corpus.source.remote.address])
            self.assertEqual(known.md5, [corpus.source.remote.checksum])
