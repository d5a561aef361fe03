"""The script that writes pairs as people type them."""

import pathlib
import runpy
import sys
from unittest import mock

from tests import folders

SCRIPT = "examples/surface_noise.py"


class SurfaceNoiseTest(folders.TestCase):
    def test_both_sides_change_alike(self):
        number = 400
        sources = [f"a dog {i} runs." for i in range(number)]
        targets = [f"ein Hund {i} läuft." for i in range(number)]
        paths = [
            str(self.write("a.en", *sources)),
            str(self.write("a.de", *targets)),
        ]
        outputs = [str(self.folder / f"out{i}") for i in range(4)]
        for seed, pair in ("1", outputs[:2]), ("1", outputs[2:]):
            arguments = [SCRIPT, *paths, *pair, f"--seed={seed}"]
            with mock.patch.object(sys, "argv", arguments):
                runpy.run_path(SCRIPT, run_name="__main__")
        texts = [pathlib.Path(path).read_text("utf-8") for path in outputs]
        self.assertEqual(texts[:2], texts[2:])
        seen = set()
        sides = [text.removesuffix("\n").split("\n") for text in texts[:2]]
        for i, (source, target) in enumerate(zip(*sides, strict=True)):
            given = sources[i], targets[i]
            if (source, target) == tuple(x.upper() for x in given):
                seen.add("capitals")
            elif source == f"A Dog {i} Runs.":
                self.assertEqual(target, f"Ein Hund {i} Läuft.")
                seen.add("title")
            elif (source, target) == tuple(x.rstrip(".") for x in given):
                seen.add("point")
            else:
                # The same tokens, and the words as they were.
                added = [
                    set(x) - set(y)
                    for x, y in (
                        (source.split(), given[0].split()),
                        (target.split(), given[1].split()),
                    )
                ]
                self.assertEqual(*added)
                self.assertNotEmpty(added[0])
                seen.add("tokens")
        self.assertLen(seen, 4)
