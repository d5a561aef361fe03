"""The script that writes pairs as people type them."""

import bz2
import contextlib
import io
import pathlib
import runpy
import sys
from unittest import mock

from tests import folders

SCRIPT = "examples/surface_noise.py"


def call(*arguments):
    """Runs the script."""
    with mock.patch.object(sys, "argv", [SCRIPT, *map(str, arguments)]):
        runpy.run_path(SCRIPT, run_name="__main__")


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
        for pair in outputs[:2], outputs[2:]:
            call(*paths, *pair, "--seed=1")
        texts = [pathlib.Path(path).read_text("utf-8") for path in outputs]
        self.assertEqual(texts[:2], texts[2:])
        seen = set()
        sides = [text.removesuffix("\n").split("\n") for text in texts[:2]]
        for i, (source, target) in enumerate(zip(*sides, strict=True)):
            given = sources[i], targets[i]
            if (source, target) == tuple(x.upper() for x in given):
                seen.add("capitals")
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
        self.assertLen(seen, 3)

    def test_lines_of_other_systems_stay_pairs(self):
        # Ends of Windows, a byte order mark, a carriage return in a line, no
        # last end; and half a pair, which says nothing about tokens.
        source, target, *outputs = (self.folder / name for name in "abcd")
        source.write_bytes(b"\xef\xbb\xbfa\r\nb\rb\r\n" + b"\n" * 30 + b"c")
        target.write_bytes(bz2.compress(b"A\nB\n" + b"D\n" * 30 + b"C"))
        call(source, target, *outputs)
        texts = [path.read_bytes() for path in outputs]
        self.assertEqual([text.count(b"\n") for text in texts], [33, 33])
        self.assertNotIn(b"\xef\xbb\xbf", texts[0])
        sides = [text.split(b"\n")[2:32] for text in texts]
        self.assertEqual(sides, [[b""] * 30, [b"D"] * 30])

    def test_files_that_do_not_fit_are_refused(self):
        a, b = self.write("a", "one", "two"), self.write("b", "eins")
        latin, utf_16, new = (self.folder / name for name in "lun")
        latin.write_bytes(b"sch\xf6n\nzw\xf6lf\n")
        utf_16.write_bytes("one\ntwo\n".encode("utf-16-le"))
        for paths, words in (
            ((a, b, new, "d"), "Received: 2 and 1 lines"),
            ((a, a, new, "d"), "one of them twice"),
            ((a, b, self.folder / "." / "a", "d"), "one of them twice"),
            ((a, latin, new, "d"), f"{latin}, .* 2 lines are not UTF-8"),
            ((a, self.write("e"), new, "d"), "no lines|empty"),
            ((utf_16, a, new, "d"), "NULs at an end.* UTF-16"),
            ((a, self.folder / "no", new, "d"), "o such file|not exist"),
            ((a, self.write("a2", "1", "2"), self.folder, "d"), "Cannot write"),
        ):
            said = io.StringIO()
            with (
                contextlib.redirect_stderr(said),
                self.assertRaises(SystemExit),
            ):
                call(*paths)
            self.assertRegex(" ".join(said.getvalue().split()), words)
        self.assertFalse(new.exists())
        self.assertEqual(a.read_text(), "one\ntwo\n")
