"""The page in headless Chromium: typing, pointing, keys, sizes, names."""

import json
import re
import time

from absl.testing import parameterized

from tests.serving import chromium
from tests.serving import servers

# What the first column shows.
TEXT = "document.querySelector('.translation').innerText"
CAPTION = "document.querySelector('.caption').innerText"
MESSAGE = "document.querySelector('.message').innerText"
ROWS = (
    "[...document.querySelector('.map').querySelectorAll('tbody tr')]"
    ".map(x => x.innerText.trim()).join(' ')"
)
ACTIVE = "document.activeElement"
# Records everything that the first column shows.
WATCH = """
(() => {
  window.seen = [];
  const column = document.querySelector('article');
  new MutationObserver(() => seen.push(column.innerText))
    .observe(column, {childList: true, subtree: true});
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
    await new Promise((resolve) => setTimeout(resolve, 400));
  };
})()
"""


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
        browser = chromium.page()
        cls.page, cls.requested, cls.messages = browser.__enter__()
        cls.addClassCleanup(browser.__exit__, None, None, None)
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
        self.requested.clear()
        self.messages.clear()
        self.open()

    def tearDown(self):
        self.assertEmpty(self.messages)
        others = [
            url
            for url in self.requested
            if not url.startswith((self.served.url, "data:,"))
        ]
        self.assertEmpty(others)
        # The server is warmed up for everything that the page asks for.
        for model, asked in self.asked.items():
            self.assertContainsSubset(asked, model.page_settings())
        super().tearDown()

    def open(self, width=1280):
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.goto(self.served.url)
        self.wait_until("document.querySelectorAll('article').length")
        self.page.evaluate("source.focus()")

    def wait_until(self, expression):
        """Polls: Playwright's own wait needs a policy that allows `eval`."""
        end = time.monotonic() + 30
        while not self.page.evaluate(f"Boolean({expression})"):
            if time.monotonic() > end:
                self.fail(f"{expression}: {self.page.inner_text('body')}")
            self.page.wait_for_timeout(20)

    def wait_for(self, expression, text):
        self.wait_until(f"{expression}.trim() === {json.dumps(text)}")

    def type_and_wait(self, text):
        """Types a line, and waits for its attention."""
        self.page.keyboard.type(text)
        self.wait_until(f"{ROWS}.endsWith(' end')")

    def test_lines_are_translated_by_both_models_as_one_types(self):
        second = TEXT.replace(
            "querySelector('.translation')",
            "querySelectorAll('.translation')[1]",
        )
        self.page.keyboard.type("gh ij")
        for column in TEXT, second:  # Both know the line from now on.
            self.wait_for(column, "JI HG")
        self.page.keyboard.type("\nef")
        for column in TEXT, second:
            self.wait_for(column, "JI HG\nFE")
        self.page.keyboard.press("Backspace")
        self.wait_for(TEXT, "JI HG\nE")
        # A line that was translated is not asked for again.
        asked = [b for b in self.fakes[1].batches if "gh ij" in b]
        self.assertLen(asked, 1)

    def test_paragraphs_are_translated_by_sentences_and_nothing_is_lost(self):
        text = "Mr. Fox runs. It is late! Is it?\n\n  Two  men.  One dog."
        text += "\nthe end"
        self.page.evaluate(f"source.value = {json.dumps(text)}")
        self.page.evaluate("source.setSelectionRange(20, 20)")
        self.page.evaluate("source.dispatchEvent(new Event('input'))")
        expected = [".SNUR XOF .RM !ETAL SI TI ?TI SI", ""]
        expected += ["  .NEM  OWT  .GOD ENO", "DNE EHT"]
        rows = (
            "[...document.querySelector('.translation').children]"
            ".map(x => x.textContent)"
        )
        self.wait_for(f"{rows}.join('|')", "|".join(expected))
        # The sentence of the cursor has alternatives and attention.
        active = "document.querySelector('.translation .active').textContent"
        self.wait_for(active, "!ETAL SI TI")
        self.wait_for(ROWS, "!ETAL SI TI end")
        self.page.evaluate("source.setSelectionRange(3, 3)")
        self.wait_for(active, ".SNUR XOF .RM")
        self.wait_for(ROWS, ".SNUR XOF .RM end")
        self.page.evaluate(
            "document.querySelectorAll('.others button')[1].click()"
        )
        expected[0] = ".SNUR XOF .RM' !ETAL SI TI ?TI SI"
        self.wait_for(rows + "[0]", expected[0])
        # A copy has the line ends of the source.
        self.page.evaluate(
            "getSelection().selectAllChildren("
            "document.querySelector('.translation'))"
        )
        self.page.keyboard.press("Control+c")
        self.assertEqual(self.paste(), "\n".join(expected))

    def paste(self):
        """Pastes in place of the text, and returns what was pasted."""
        self.page.evaluate("source.focus() || source.select()")
        self.page.keyboard.press("Control+v")
        return self.page.evaluate("source.value")

    def test_a_button_copies_the_whole_translation(self):
        self.page.keyboard.type("ab. Cd.\n\n7\nef")
        self.wait_until(f"{TEXT}.endsWith('FE')")
        button = "document.querySelector('.copy')"
        self.page.evaluate(f"{button}.focus()")
        self.page.keyboard.press("Enter")
        self.wait_for(f"{button}.innerText", "Copied")
        self.assertEqual(self.paste(), ".BA .DC\n\n7\nFE")
        self.page.evaluate("source.select()")
        self.page.keyboard.press("Backspace")
        self.wait_until(f"{button}.checkVisibility() === false")

    def test_a_server_that_is_not_warm_says_so(self):
        fake = servers.FakeTranslator()
        fake.gate.clear()
        self.addCleanup(fake.gate.set)
        note = "document.querySelector('#preparing').checkVisibility()"
        self.assertFalse(self.page.evaluate(note))
        with servers.Served({"one": fake}, is_cold=True) as served:
            self.page.goto(served.url)
            self.wait_until(note)
            fake.gate.set()
            self.wait_until(f"!{note}")
        self.requested.clear()
        # Chromium notes the status 503.
        self.assertTrue(all("503" in x for x in self.messages))
        self.messages.clear()

    def test_answers_that_come_too_late_are_dropped(self):
        self.page.evaluate(HOLD)
        self.page.evaluate(WATCH)
        # First the translation is late, then the attention alone.
        for held, text, newer, stale in (
            ("abcd", "abcd", "e", r"\bDCBA\b"),
            ("attention", "f", "g", r"\bFEDCBA\s+end\b"),
        ):
            self.page.evaluate(f"held = '{held}'")
            self.page.keyboard.type(text)
            self.wait_until("waiting.length")
            self.page.evaluate("held = null")
            self.page.keyboard.type(newer)
            line = self.page.evaluate("source.value")
            expected = servers.translation_of(line)
            self.wait_for(ROWS, f"{expected} end")
            self.page.evaluate("release()")
            self.wait_for(ROWS, f"{expected} end")
            self.wait_for(TEXT, expected)
            seen = self.page.evaluate("seen")
            self.assertTrue(any(expected in one for one in seen))
            self.assertEmpty([one for one in seen if re.search(stale, one)])

    def test_text_is_never_code(self):
        text = "<img src=x onerror=alert(1)> &amp;"
        self.type_and_wait(text)
        self.wait_for(TEXT, servers.translation_of(text))
        self.assertEqual(
            self.page.evaluate("document.querySelectorAll('img').length"), 0
        )

    def test_a_row_shows_the_attention_of_a_piece(self):
        self.type_and_wait("one two three.")
        self.wait_for(ROWS, ".EERHT OWT ENO end")
        self.page.hover(".map tbody tr:nth-child(2) td")
        self.wait_for(CAPTION, "OWT attends to two 75 %, one 13 %, three. 13 %")
        weights = self.page.evaluate(
            "[...document.querySelectorAll('.map tbody tr')[1].cells]"
            ".slice(1).map(x => x.style.getPropertyValue('--weight'))"
        )
        self.assertEqual(weights, ["0.125", "0.750", "0.125", "0.125"])

    def test_heads_and_layers_can_be_chosen(self):
        self.type_and_wait("ab")
        for name, count in (("layer", 3), ("head", 4)):
            select = f"document.querySelector('.{name}')"
            self.assertEqual(self.page.evaluate(f"{select}.length"), count)
            self.page.evaluate(f"{select}.value = 1")
            self.page.evaluate(f"{select}.dispatchEvent(new Event('change'))")
        self.wait_for(ROWS, "BA end")

    def test_alternatives_have_scores_and_can_be_shown(self):
        self.type_and_wait("ab")
        self.assertEqual(
            self.page.evaluate(
                "[...document.querySelector('.others ol').children]"
                ".map(x => x.innerText.split('\\n').filter(Boolean))"
            ),
            [
                ["\u22121.50", "BA"],
                ["\u22122.50", "BA'"],
                ["\u22123.50", "BA''"],
            ],
        )
        self.page.evaluate(
            "document.querySelectorAll('.others button')[1].focus()"
        )
        self.page.keyboard.press("Enter")
        self.wait_for(TEXT, "BA'")
        self.assertEqual(self.page.evaluate(f"{ACTIVE}.ariaPressed"), "true")

    def test_keys_reach_everything(self):
        self.type_and_wait("ab cd")
        for expected in (
            *("one (fake)", "Copy"),
            *("BA, score -1.50", "BA', score -2.50", "BA'', score -3.50"),
            *("all layers", "all heads", "DC"),
        ):
            self.page.keyboard.press("Tab")
            name = (
                f"({ACTIVE}.ariaLabel?.includes('score') ? {ACTIVE}.ariaLabel"
                f" : {ACTIVE}.selectedOptions?.[0].text ?? {ACTIVE}.innerText)"
            )
            self.assertIn(expected, self.page.evaluate(name).strip())
        self.wait_for(CAPTION, "DC attends to cd 75 %, ab 13 %, end 13 %")
        self.page.keyboard.press("ArrowDown")
        self.wait_for(CAPTION, "BA attends to ab 75 %, cd 13 %, end 13 %")

    def test_errors_are_said_and_the_next_text_is_translated(self):
        self.page.keyboard.type("bad")
        self.wait_for(MESSAGE, "bad cannot be translated.")
        self.page.keyboard.type("ly")
        self.wait_for(TEXT, "YLDAB")
        self.wait_for(MESSAGE, "")
        # Chromium notes the status, sometimes after the page shows the error.
        self.assertTrue(
            all("422" in text for text in self.messages), self.messages
        )
        self.messages.clear()
        # The server is gone.
        gone = "() => Promise.reject(new TypeError('Failed to fetch'))"
        self.page.evaluate(f"void (window.fetch = {gone})")
        self.page.keyboard.type("ab")
        self.wait_for(MESSAGE, "The server does not answer.")

    @parameterized.parameters(1280, 400)
    def test_it_fits(self, width):
        self.open(width=width)
        hint = "document.querySelector('.hint').checkVisibility()"
        self.type_and_wait("ab ")
        self.assertFalse(self.page.evaluate(hint))
        self.type_and_wait("Donaudampfschifffahrtsgesellschaft " * 9)
        self.wait_until(hint)  # the picture scrolls, not the page
        room = "document.documentElement.scrollWidth"
        self.assertEqual(self.page.evaluate(room), width)
        columns = self.page.evaluate(
            "[...document.querySelectorAll('article')]"
            ".map(x => x.getBoundingClientRect().x)"
        )
        self.assertEqual(len(set(columns)), 2 if width == 1280 else 1)
