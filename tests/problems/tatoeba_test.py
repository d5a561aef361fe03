"""Tests of the Tatoeba split."""

import zipfile

from relpos_tf import errors
from relpos_tf.problems import tatoeba
from tests import folders

_LINES = [
    line
    for i in range(50)
    for line in (
        f"Cat {i} sleeps.\tKatze {i} schläft.\tCC-BY",
        f"CAT {i} sleeps!\tDie Katze {i} schläft.\tCC-BY",
        f"The cat {i} is asleep.\tKatze {i} schläft!\tCC-BY",
    )
]


class TatoebaTest(folders.TestCase):
    def split(self, lines, held_out):
        return tatoeba.split_pairs(self.write("deu.txt", *lines), held_out)

    def test_no_training_pair_shares_a_side_with_a_held_out_pair(self):
        train, dev, test = self.split([*_LINES, "no tab here"], 7)
        self.assertLen(dev, 7)
        self.assertLen(test, 7)
        english = {tatoeba.normalized(pair[0]) for pair in dev + test}
        german = {tatoeba.normalized(pair[1]) for pair in dev + test}
        self.assertLen(english, 14)
        for pair in train:
            self.assertNotIn(tatoeba.normalized(pair[0]), english)
            self.assertNotIn(tatoeba.normalized(pair[1]), german)
        everything = [tuple(line.split("\t")[:2]) for line in _LINES]
        dropped = set(everything) - set(train)
        self.assertTrue(set(dev + test) <= dropped)
        for pair in dropped:
            self.assertTrue(
                {tatoeba.normalized(side) for side in pair} & (english | german)
            )

    def test_the_split_does_not_depend_on_the_order_of_the_file(self):
        unique = _LINES[::3]
        first, second = (self.split(x, 5) for x in (unique, unique[::-1]))
        self.assertEqual(first[1:], second[1:])
        self.assertCountEqual(first[0], second[0])

    def test_a_file_too_small_to_split_is_refused(self):
        with self.assertRaisesRegex(errors.UserError, "Received: 6"):
            self.split(_LINES[:9], 3)

    def test_the_archive_in_the_folder_is_split(self):
        lines = "".join(f"Cat {i}.\tKatze {i}.\tCC-BY\n" for i in range(4100))
        with zipfile.ZipFile(self.folder / "deu-eng.zip", "w") as archive:
            archive.writestr("deu.txt", lines)
        sizes = [
            len(list(tatoeba.read(split, str(self.folder))))
            for split in ("train", "dev", "test")
        ]
        self.assertEqual(sizes, [100, 2000, 2000])
