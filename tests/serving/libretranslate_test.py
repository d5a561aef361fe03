"""LibreTranslate's API on a running server, asked by its real clients."""

import http.client
import json
import socket
import time
from unittest import mock
from urllib import error as url_error
from urllib import parse as urls

import deep_translator
import libretranslatepy
from absl.testing import parameterized
from deep_translator import exceptions

from relpos_tf.serving import batching
from relpos_tf.serving import limits
from tests.serving import servers

FORM = {"content-type": "application/x-www-form-urlencoded"}
MULTIPART_OF = "multipart/form-data; boundary=x"
MULTIPART = {"content-type": MULTIPART_OF}
PART = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n'
CODED = PART.replace(b"q", b"q-").replace(b"a\r", b"a" * 400_000 + b"-a\r")
CODED += b"--x--\r\n"
NESTED = b"--x\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n"
ORIGIN = "https://example.org"
# Three paragraphs, one of which has several sentences.
TEXT = "Mr. Fox runs. It is late!\n\n  Yes.  No?\r\nthe end"
TRANSLATED = ".SNUR XOF .RM !ETAL SI TI\n\n  .SEY  ?ON\r\nDNE EHT"


# What clients send; PORT stands for the server's.
REQUESTS = {
    "Mastodon": (
        b"POST /translate HTTP/1.1\r\nUser-Agent: http.rb/5.3.1 "
        b"(Mastodon/4.5.0; +https://a.example/)\r\nHost: 127.0.0.1\r\n"
        b"Date: Fri, 27 Nov 2026 06:46:46 GMT\r\nAccept-Encoding: gzip\r\n"
        b"Content-Type: application/json\r\nConnection: close\r\n"
        b"Content-Length: 289\r\n\r\n"
        b'{"q":["<p>Hi <span class=\\"h-card\\" translate=\\"no\\"><a href=\\"'
        b'https://a.example/@bob\\" class=\\"u-url mention\\">@<span>bob</span>'
        b"</a></span>. It&#39;s 7 &lt; 8 &amp; late.<br />Yes! Go.</p>"
        b'","<span translate=\\"no\\">:a:</span>"],"source":"auto",'
        b'"target":"de","format":"html","api_key":null}',
        [
            '<p>IH <span class="h-card" translate="no"><a href="'
            'https://a.example/@bob" class="u-url mention">@<span>bob</span>'
            "</a></span>.ETAL &amp; 8 &lt; 7 S'TI .<br />!SEY .OG</p>",
            '<span translate="no">:a:</span>',
        ],
    ),
    "i18n-ally": (
        b"POST /translate HTTP/1.1\r\nAccept: application/json, text/plain, */*"
        b"\r\nContent-Type: application/json\r\nUser-Agent: axios/0.21.4\r\n"
        b"Content-Length: 85\r\nHost: 127.0.0.1:PORT\r\n"
        b"Connection: keep-alive\r\n\r\n"
        b'{"q":"{name}, Tom & Jerry don\'t run. \xc3\xa4","source":"en",'
        b'"target":"de","format":"html"}',
        ".NUR T'NOD YRREJ &amp; MOT ,}EMAN{ Ä",
    ),
    "Weblate": (
        b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n"
        b"User-Agent: Weblate/5.17\r\nAccept-Encoding: gzip, deflate, br\r\n"
        b"Accept: */*\r\nConnection: keep-alive\r\nContent-Length: 87\r\n"
        b"Content-Type: application/json\r\n\r\n"
        b'{"api_key": "", "q": ["%d < 3 & \\u00e4.\\n2026", "..."], '
        b'"source": "en", "target": "de"}',
        [".Ä & 3 < D%\n2026", "..."],
    ),
}


class LibreTranslateTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.fakes = {
            name: servers.FakeTranslator()
            for name in ("plain", "de", "zh", "de2")
        }
        cls.served = servers.Served(
            cls.fakes,
            languages={
                "de": ("en", "de"),
                "zh": ("en", "zh"),
                "de2": ("en", "de"),
            },
            cors_origins=[ORIGIN],
            max_lines=20,
            max_line_ids=75,
        )
        cls.served.__enter__()
        cls.addClassCleanup(cls.served.__exit__)

    def setUp(self):
        super().setUp()
        self.client = libretranslatepy.LibreTranslateAPI(self.served.url)

    def post(self, path="/translate", **values):
        """Returns status and JSON of an answer to a JSON object."""
        body = json.dumps(values)
        status, _, answer = self.served.ask("POST", path, body)
        return status, json.loads(answer)

    def translate(self, q, **values):
        status, answer = self.post(q=q, source="en", target="de", **values)
        self.assertEqual(status, 200, answer)
        return answer

    def test_libretranslatepy(self):
        self.assertEqual(self.client.translate(TEXT, "en", "de"), TRANSLATED)
        self.assertEqual(
            self.client.languages(),
            [
                {"code": "en", "name": "English", "targets": ["de", "zh"]},
                {"code": "de", "name": "German", "targets": []},
                {"code": "zh", "name": "Chinese", "targets": []},
            ],
        )
        self.assertEqual(
            self.client.detect("Hello."), [{"confidence": 0, "language": "en"}]
        )
        keyed = libretranslatepy.LibreTranslateAPI(self.served.url, "a key")
        self.assertEqual(keyed.translate("ab", "en", "de"), "BA")
        with self.assertRaises(url_error.HTTPError) as caught:
            self.client.translate("ab", "en", "es")
        self.assertEqual(caught.exception.code, 400)
        self.assertIn("en-de, en-zh", json.load(caught.exception)["error"])

    def test_deep_translator(self):
        def client(target):
            return deep_translator.LibreTranslator(
                source="en",
                target=target,
                api_key="any",
                custom_url=self.served.url,
            )

        # It writes the text into the address.
        self.assertEqual(client("de").translate(TEXT), TRANSLATED)
        self.assertEqual(
            client("de").translate_batch(["ä+b", "c&d=e"]), ["B+Ä", "E=D&C"]
        )
        with self.assertRaises(exceptions.ServerException):
            client("fr").translate("ab")

    @parameterized.parameters(*REQUESTS)
    def test_the_bytes_of_a_client_are_answered(self, client):
        request, expected = REQUESTS[client]
        request = request.replace(b"PORT", str(self.served.port).encode())
        address = "127.0.0.1", self.served.port
        with socket.create_connection(address, 60) as connection:
            connection.sendall(request)
            response = http.client.HTTPResponse(connection)
            response.begin()
            answer = json.load(response)
        self.assertEqual(answer.get("translatedText"), expected, answer)

    def test_a_translation_that_the_length_limit_cut_off_is_named(self):
        long = "a" * 100 + "."
        with self.assertLogs("relpos_tf", "WARNING") as logged:
            answer = self.translate(["ab.", "cd. " + long, "7"])
        self.assertEqual(answer["complete"], [True, False, True])
        self.assertIn(
            "of de that the length limit cut off: 1.", logged.output[0]
        )
        self.assertNotIn("aaa", logged.output[0])
        with self.assertNoLogs("relpos_tf", "WARNING"):
            self.assertIs(self.translate("ab.")["complete"], True)

    def test_forms(self):
        fields = {"q": "ä & b.\r\nC=d?", "source": "en", "target": "de"}
        body = urls.urlencode(fields)
        boundary = "--x y"
        parts = [
            f'{boundary}\r\nContent-Disposition: form-data; name="{name}"'
            f"\r\n\r\n{value}\r\n"
            for name, value in fields.items()
        ]
        multipart = "".join([*parts, f"{boundary}--\r\n"]).encode()
        kind = 'multipart/form-data; boundary="x y"'
        for content, headers in (
            (body, FORM),
            (multipart, {"content-type": kind}),
            (body.encode().replace(b"%C3%A4", b"\xc3\xa4"), FORM),
        ):
            status, _, answer = self.served.ask(
                "POST", "/translate", content, headers
            )
            self.assertEqual(status, 200, answer)
            self.assertEqual(
                json.loads(answer)["translatedText"], ".B & Ä\r\n?D=C"
            )
        again = self.served.ask("POST", "/translate", f"{body}&q=x", FORM)
        self.assertEqual(again[0], 400)

    @parameterized.parameters("text/plain", "", FORM["content-type"])
    def test_json_needs_its_type_which_other_pages_cannot_send(self, kind):
        body = '{"q": "a", "source": "en", "target": "de"}'
        status, _, answer = self.served.ask(
            "POST", "/translate", body, {"content-type": kind}
        )
        self.assertEqual(status, 400)
        self.assertIn(
            "Content-Type: application/json", json.loads(answer)["error"]
        )

    @parameterized.parameters(
        (b"q=1" + b"&a=b" * 101, FORM),
        (b"&" * 999_000, FORM),
        (b"q=a&source=en&target=de" + b"&" * 100, FORM),
        (PART * 101 + b"--x--", MULTIPART),
        (NESTED * 16_000, MULTIPART),
        (NESTED * 2_000, MULTIPART),
        (b"q", {"content-type": "multipart/form-data"}),
        (CODED, {"content-type": f"{MULTIPART_OF}; CharSet=punycode"}),
        (CODED, {"content-type": f"{MULTIPART_OF}; charset=undefined"}),
        (
            b'{"q": ['
            + b'"",' * 240_000
            + b'""], "source": "en", "target": "de"}',
            servers.JSON,
        ),
        (
            json.dumps({f"{i}": 0 for i in range(80_000)} | {"lines": []}),
            servers.JSON,
        ),
        (json.dumps({"lines": [], "x" * 999_000: 0}), servers.JSON),
    )
    def test_what_is_large_is_refused_without_work(self, body, headers):
        begun = time.process_time()
        status, _, _ = self.served.ask("POST", "/translate", body, headers)
        self.assertIn(status, (400, 422))
        # 0.5 s at most on one core; some took minutes.
        self.assertLess(time.process_time() - begun, 5)

    def test_lists_and_alternatives(self):
        self.assertEqual(
            self.translate(["ab", "", "Cd. E."]),
            {
                "translatedText": ["BA", "", ".DC .E"],
                "complete": [True, True, True],
            },
        )
        self.assertEqual(
            self.translate([], format=None),
            {"translatedText": [], "complete": []},
        )
        # The fourth translation is not found.
        for number, expected in (
            (1, [".BA'"]),
            ("2", [".BA'", ".BA''"]),
            (99, [".BA'", ".BA''"]),
            (2.0, [".BA'", ".BA''"]),
        ):
            answer = self.translate("ab.", alternatives=number, format="")
            self.assertEqual(answer["translatedText"], ".BA")
            self.assertEqual(answer["alternatives"], expected)
        answer = self.translate("<b>ab</b>", alternatives=1, format="html")
        self.assertEqual(answer["alternatives"], ["<b>BA'</b>"])
        answer = self.translate(["Ab. Cd.", "\n"], alternatives=1)
        self.assertEqual(answer["alternatives"], [[".BA' .DC'"], []])
        with mock.patch.object(
            servers, "translation_of", lambda line, rank=0: line
        ):  # all are the same
            answer = self.translate("ab", alternatives=3)
        self.assertEqual(answer["alternatives"], [])

    @parameterized.parameters("en_US", "EN", "en-GB", "eng")
    def test_any_code_of_a_language_is_taken(self, code):
        status, answer = self.post(q="ab", source=code, target="deu")
        self.assertEqual((status, answer["translatedText"]), (200, "BA"))
        status, answer = self.post(q="ab", source=code, target="fr_CA")
        self.assertEqual(status, 400)
        self.assertIn(f"Received: {code}-fr_CA.", answer["error"])

    def test_auto_is_the_language_of_the_model(self):
        for target, model in (("de", "de"), ("zh", "zh")):
            status, answer = self.post(
                q="ab " + target, source="auto", target=target
            )
            self.assertEqual(status, 200)
            self.assertIn(["ab " + target], self.fakes[model].batches)
            self.assertEqual(
                answer["detectedLanguage"], {"confidence": 0, "language": "en"}
            )
        _, answer = self.post(q=["a", "b"], source="auto", target="de")
        self.assertLen(answer["detectedLanguage"], 2)

    def test_languages_without_blanks_are_joined_without(self):
        self.assertEqual(
            self.client.translate("Ab. Cd.\nEf", "en", "zh"), ".BA.DC\nFE"
        )

    @parameterized.parameters(
        ({"q": None}, '"q"'),
        ({"q": 7}, '"q"'),
        ({"q": ["a", None]}, '"q"'),
        ({"source": None}, '"source"'),
        ({"target": None}, '"target"'),
        ({"source": "de", "target": "en"}, ": en-de, en-zh. "),
        ({"format": "md"}, '"format": "text" or "html"'),
        ({"alternatives": 1.5}, '"alternatives"'),
        ({"alternatives": "x"}, '"alternatives"'),
        ({"q": ["A! " * 9] * 3}, "most 20 s"),
        ({"q": "a" * 301}, "at most 75 ids"),
        ({"q": "bad"}, "bad cannot"),
        ({"model": "x", "n_best": 2}, '"lines" beside model'),
    )
    def test_refusals(self, changes, expected):
        values = {"q": "a", "source": "en", "target": "de"} | changes
        values = {name: x for name, x in values.items() if x is not None}
        status, answer = self.post(**values)
        self.assertEqual((status, list(answer)), (400, ["error"]))
        self.assertIn(expected, answer["error"])

    def test_a_full_queue_is_429(self):
        busy = limits.RefusedError(503, "Too busy.")
        values = {"q": "ab", "source": "en", "target": "de"}
        with mock.patch.object(batching.Worker, "submit", side_effect=busy):
            status, headers, answer = self.served.post(values)
        self.assertEqual((status, answer), (429, {"error": "Too busy."}))
        self.assertIn("retry-after", headers)

    def test_a_text_to_detect_is_needed(self):
        self.assertEqual(self.post("/detect", x="")[0], 400)

    def test_lines_of_the_other_api_can_be_split_as_well(self):
        status, answer = self.post(
            lines=["  Ab. Cd.", " "], model="de", split_sentences=True
        )
        self.assertEqual(status, 200)
        first, second = answer["translations"]
        self.assertEqual(second, {"before": " ", "sentences": []})
        self.assertEqual(first["before"], "  ")
        self.assertEqual(
            [
                (one["source"], one["hypotheses"][0]["text"], one["after"])
                for one in first["sentences"]
            ],
            [("Ab. ", ".BA", " "), ("Cd.", ".DC", "")],
        )

    def test_only_named_origins_may_read_answers(self):
        allow = "access-control-allow-origin"
        for origin, expected in ((ORIGIN, ORIGIN), ("https://x.org", None)):
            _, headers, _ = self.served.ask(
                "POST",
                "/translate",
                '{"lines": []}',
                {"origin": origin, "content-type": "application/json"},
            )
            self.assertEqual(headers[allow], expected)
            asked = {
                "origin": origin,
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization, "
                "content-type, x-requested-with",
            }
            status, headers, _ = self.served.ask(
                "OPTIONS", "/translate", None, asked
            )
            self.assertEqual(headers[allow], expected)
            self.assertEqual(status, 200 if expected else 400)
            # A form needs no preflight, but browsers say whose it is.
            form = FORM | {"origin": origin, "sec-fetch-site": "cross-site"}
            body = "q=a&source=en&target=de"
            status, _, _ = self.served.ask("POST", "/translate", body, form)
            self.assertEqual(status, 200 if expected else 403)
        with self.assertLogs("relpos_tf", "ERROR"):
            _, headers, _ = self.served.ask(
                "POST",
                "/translate",
                '{"lines": ["bug"]}',
                servers.JSON | {"origin": ORIGIN},
            )
        self.assertEqual(headers[allow], ORIGIN)
        with servers.Served({"one": servers.FakeTranslator()}) as served:
            headers = served.ask("GET", "/languages", None, {"origin": ORIGIN})
            self.assertNotIn(allow, headers[1])
            self.assertEqual(headers[2], b"[]")
