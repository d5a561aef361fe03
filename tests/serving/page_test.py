"""The page in headless Chromium: typing, pointing, keys, sizes, names."""

import json
import re

from absl.testing import absltest
from absl.testing import parameterized

from tests.serving import chromium
from tests.serving import servers

# What the first column shows.
TEXT = "document.querySelector('.translation').innerText"
ACTIVE = "document.activeElement"
NAMED_ROLES = frozenset("button combobox textbox image".split())
# Records everything that the first column shows, its pictures in words.
WATCH = """
(() => {
  window.seen = [];
  const column = document.querySelector('.column');
  new MutationObserver(() => {
    const picture = column.querySelector('.map svg');
    seen.push(column.innerText, picture ? picture.ariaLabel : '');
  }).observe(column, {childList: true, subtree: true});
})()
"""
# Keeps the answers to requests that contain `held` until `release()`, also
# where the page has given them up: as if they had been on their way already.
HOLD = """
(() => {
  const real = window.fetch;
  const waiting = [];
  window.held = null;
  window.fetch = (address, {signal, ...options}) => {
    const answer = real(address, options);
    if (!held || !options.body.includes(held)) return answer;
    return new Promise((resolve) => waiting.push(() => resolve(answer)));
  };
  window.waiting = waiting;
  window.release = async () => {
    waiting.splice(0).forEach((resolve) => resolve());
    // The page rests for less than that before it asks for attention.
    await new Promise((resolve) => setTimeout(resolve, 400));
  };
})()
"""


def word(number, column=0):
    """Returns the expression for a word of a translation."""
    return (
        f"document.querySelectorAll('.column')[{column}]"
        f".querySelectorAll('.word')[{number}]"
    )


def spy_settings(model):
    """Returns a set to which a model adds the settings that it is asked for."""
    asked, settings = set(), model.settings

    def spied(query):
        found = settings(query)
        asked.add(found)
        return found

    model.settings = spied
    return asked


class PageTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = chromium.Browser()
        cls.browser.__enter__()
        cls.addClassCleanup(cls.browser.__exit__)
        cls.fakes = servers.FakeTranslator(), servers.FakeTranslator(False)
        cls.served = servers.Served(
            {"one": cls.fakes[0], "two": cls.fakes[1]}, max_lines=50
        )
        cls.asked = {
            worker.model: spy_settings(worker.model)
            for worker in cls.served.workers.values()
        }
        cls.served.__enter__()
        cls.addClassCleanup(cls.served.__exit__)

    def setUp(self):
        super().setUp()
        self.browser.requested.clear()
        self.browser.messages.clear()
        self.open()

    def tearDown(self):
        self.fakes[0].gate.set()
        self.assertEmpty(self.browser.messages)
        others = [
            url
            for url in self.browser.requested
            if not url.startswith((self.served.url, "data:,"))
        ]
        self.assertEmpty(others)
        # The server is warmed up for everything that the page asks for.
        for model, asked in self.asked.items():
            self.assertContainsSubset(asked, model.kinds_of_page())
        super().tearDown()

    def open(self, **kwargs):
        self.browser.open(self.served.url, **kwargs)
        self.browser.wait_for("document.querySelectorAll('.column').length")
        self.browser.run("document.querySelector('#source').focus()")

    def wait_for_text(self, text):
        self.browser.wait_for(f"{TEXT}.trim() === {json.dumps(text)}")

    def value(self, selector, name="textContent"):
        return self.browser.run(f"document.querySelector('{selector}').{name}")

    def test_lines_are_translated_by_both_models_as_one_types(self):
        self.browser.type("ab cd\nef")
        self.wait_for_text("DC BA\n\nFE")
        self.browser.wait_for(
            "document.querySelectorAll('.translation')[1].innerText.trim()"
            f" === {TEXT}.trim()"
        )
        self.browser.press("Backspace")
        self.wait_for_text("DC BA\n\nE")
        # A line that was translated is not asked for again.
        self.assertEqual(
            [b for b in self.fakes[1].batches if "ab cd" in b][1:], []
        )

    def test_one_model_or_two(self):
        columns = "document.querySelectorAll('.column').length"
        self.assertEqual(self.browser.run(columns), 2)
        self.browser.point("document.querySelector('#compare')", click=True)
        self.assertEqual(self.browser.run(columns), 1)
        self.browser.point("document.querySelector('#compare')", click=True)
        self.assertEqual(self.browser.run(columns), 2)
        names = self.browser.run(
            "[...document.querySelectorAll('.model')].map(x => x.value)"
        )
        self.assertEqual(names, ["one", "two"])

    def test_answers_that_come_too_late_are_dropped(self):
        self.browser.run(HOLD)
        self.browser.run(WATCH)
        # First the translation is late, then the attention alone.
        for held, text, newer, stale in (
            ("abcd", "abcd", "e", r"\bDCBA\b"),
            ("attention", "f", "g", r"\bFEDCBA to abcdef\b"),
        ):
            self.browser.run(f"held = '{held}'")
            self.browser.type(text)
            self.browser.wait_for("waiting.length")
            self.browser.run("held = null")
            self.browser.type(newer)
            line = self.browser.run("document.querySelector('#source').value")
            label = f"{servers.translation_of(line)} to {line}"
            picture = "document.querySelector('.map svg')"
            shown = f"{picture}?.ariaLabel.includes({json.dumps(label)})"
            self.browser.wait_for(shown)
            self.browser.run("release()")
            self.assertTrue(self.browser.run(shown))
            self.wait_for_text(servers.translation_of(line))
            seen = self.browser.run("seen")
            self.assertTrue(any(label in one for one in seen))
            self.assertEmpty([one for one in seen if re.search(stale, one)])

    def test_text_is_never_code(self):
        text = "<img src=x onerror=alert(1)> &amp;"
        self.browser.type(text)
        self.wait_for_text(servers.translation_of(text))
        self.assertEqual(
            self.browser.run("document.querySelectorAll('img').length"), 0
        )

    def test_pointing_at_a_word_shows_its_attention(self):
        self.browser.type("one two three.")
        self.browser.wait_for("document.querySelector('.map svg')")
        self.browser.point(word(2))  # after the full stop
        self.browser.wait_for("document.querySelector('.word.chosen')")
        self.assertEqual(
            self.value(".caption"),
            "OWT attends to two 75 %, one 13 %, three. 13 %",
        )
        lit = self.browser.run(
            "[...document.querySelectorAll('#mirror span')]"
            ".map(x => [x.innerText, x.style.getPropertyValue('--weight')])"
        )
        self.assertEqual(dict(lit)["two"], "0.750")
        self.browser.point("document.querySelectorAll('.map rect')[0]")
        self.browser.point("document.querySelector('h1')")
        self.assertStartsWith(self.value(".caption"), "Point at a word")
        self.assertEqual(self.value("#mirror"), "")

    def test_heads_and_layers_can_be_chosen(self):
        self.browser.type("ab")
        self.browser.wait_for("document.querySelector('.map svg')")
        for name, count in ((".layer", 3), (".head", 4)):
            self.assertEqual(self.value(name, "length"), count)
        self.assertIn("BA to ab", self.value(".map svg", "ariaLabel"))

    def test_alternatives_have_scores_and_can_be_shown(self):
        self.browser.type("ab")
        self.wait_for_text("BA")
        self.assertEqual(
            self.browser.run(
                "[...document.querySelector('.others ol').children]"
                ".map(x => x.innerText.split('\\n').filter(Boolean))"
            ),
            [
                ["\u22121.50", "BA"],
                ["\u22122.50", "BA'"],
                ["\u22123.50", "BA''"],
            ],
        )
        self.browser.run(
            "document.querySelectorAll('.others button')[1].focus()"
        )
        self.browser.press("Enter")
        self.wait_for_text("BA'")
        pressed = f"{ACTIVE}.getAttribute('aria-pressed')"
        self.assertEqual(self.browser.run(pressed), "true")

    def test_everything_is_done_with_keys_alone(self):
        self.browser.type("ab cd ef")
        self.wait_for_text("FE DC BA")
        for expected in ("model", "copy", "word"):
            self.browser.press("Tab")
            self.assertEqual(self.browser.run(f"{ACTIVE}.className"), expected)
        self.browser.wait_for("document.querySelector('.map svg')")
        self.browser.press("ArrowRight")
        self.assertStartsWith(self.value(".caption"), "DC attends to cd 75 %")
        self.browser.press("End")
        self.browser.press("ArrowLeft")
        self.browser.press("Enter")
        self.assertEqual(self.browser.run(f"{ACTIVE}.value"), "FE ")
        self.browser.type("XY")
        self.wait_for_text("FE XYFE DC BA")
        forced = (
            "[...document.querySelectorAll('.forced')].map(x => x.innerText)"
        )
        self.assertEqual(self.browser.run(forced), ["FE"])
        self.browser.press("Escape")
        self.wait_for_text("FE DC BA")
        self.assertEqual(self.browser.run(f"{ACTIVE}.value"), "")
        self.browser.press("Tab")
        self.assertIn("FE DC BA", self.browser.run(f"{ACTIVE}.ariaLabel"))
        self.browser.press("Tab", shift=True)
        self.assertEqual(self.browser.run(f"{ACTIVE}.tagName"), "INPUT")

    def test_an_error_is_said_and_the_next_text_is_translated(self):
        self.browser.type("bad")
        self.browser.wait_for(
            "document.querySelector('.message').innerText"
            " === 'bad cannot be translated.'"
        )
        self.browser.type("ly")
        self.wait_for_text("YLDAB")
        self.assertEqual(self.value(".message"), "")
        # Chromium notes the status, sometimes after the page shows the error.
        self.assertTrue(
            all("422" in text for text in self.browser.messages),
            self.browser.messages,
        )
        self.browser.messages.clear()

    def test_a_server_that_is_gone_is_said(self):
        gone = "() => Promise.reject(new TypeError('Failed to fetch'))"
        self.browser.run(f"window.fetch = {gone}")
        self.browser.type("ab")
        self.browser.wait_for(
            "document.querySelector('.message').innerText"
            " === 'The server does not answer.'"
        )

    def test_controls_have_names(self):
        self.browser.type("ab")
        self.browser.wait_for("document.querySelector('.map svg')")
        nodes = self.browser.call("Accessibility.getFullAXTree")["nodes"]
        found = [
            (node["role"]["value"], node["name"]["value"].strip())
            for node in nodes
            if not node.get("ignored") and node["role"]["value"] in NAMED_ROLES
        ]
        self.assertGreater(len(found), 10)
        self.assertEmpty([role for role, name in found if not name])
        for expected in (
            ("textbox", "Text"),
            ("combobox", "Model"),
            ("combobox", "Layer"),
            ("textbox", "Begins with"),
            ("button", "Colours: system"),
            ("button", "BA, score -1.50"),
        ):
            self.assertIn(expected, found)

    @parameterized.product(width=(1280, 400), dark=(False, True))
    def test_it_fits_and_has_contrast(self, width, dark):
        self.open(width=width, dark=dark)
        self.browser.type("Donaudampfschifffahrtsgesellschaft " * 9)
        self.browser.wait_for("document.querySelector('.map svg')")
        room = "document.documentElement.scrollWidth"
        self.assertEqual(self.browser.run(room), width)
        columns = self.browser.run(
            "[...document.querySelectorAll('.column')]"
            ".map(x => x.getBoundingClientRect().x)"
        )
        self.assertEqual(len(set(columns)), 2 if width == 1280 else 1)
        for selector, least in (("textarea", 12), ("h2", 4.5), (".score", 4.5)):
            self.assertGreater(self.contrast(selector), least, selector)

    def contrast(self, selector):
        """Returns the contrast of a text with the page, as WCAG defines it."""
        colours = [
            self.browser.run(
                f"getComputedStyle(document.querySelector('{one}')).{name}"
            )
            for one, name in ((selector, "color"), ("body", "backgroundColor"))
        ]
        high, low = sorted(map(luminance, colours), reverse=True)
        return (high + 0.05) / (low + 0.05)

    def test_the_colours_are_chosen_and_kept(self):
        background = "getComputedStyle(document.body).backgroundColor"
        light = self.browser.run(background)
        for _ in range(2):
            self.browser.point("document.querySelector('#theme')", click=True)
        dark = self.browser.run(background)
        self.assertLess(luminance(dark), 0.1)
        self.assertGreater(luminance(light), 0.8)
        self.open()
        self.assertEqual(self.browser.run(background), dark)
        self.browser.point("document.querySelector('#theme')", click=True)
        self.assertEqual(self.browser.run(background), light)


def luminance(colour):
    """Returns the relative luminance of `rgb(r, g, b)`."""
    numbers = colour.removeprefix("rgb(").removesuffix(")").split(",")
    linear = [
        x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4
        for x in (int(number) / 255 for number in numbers)
    ]
    weights = 0.2126, 0.7152, 0.0722
    return sum(w * x for w, x in zip(weights, linear, strict=True))


if __name__ == "__main__":
    absltest.main()
