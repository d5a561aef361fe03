"""The OpenAPI description says what the server takes and answers."""

import dataclasses
import json
from unittest import mock

import jsonschema
from absl.testing import absltest

import relpos_tf
from relpos_tf.serving import app as app_lib
from relpos_tf.serving import libretranslate
from relpos_tf.serving import queries
from tests.serving import servers

TEXTS = {"source": "auto", "target": "de", "alternatives": 1}


class OpenapiTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.served = servers.Served(
            {"de": servers.FakeTranslator()}, languages={"de": ("en", "de")}
        )
        cls.served.__enter__()
        cls.addClassCleanup(cls.served.__exit__)
        status, headers, body = cls.served.ask("GET", "/openapi.json")
        assert (status, headers["content-type"]) == (200, "application/json")
        cls.spec = json.loads(body)

    def test_addresses_and_methods_are_those_of_the_application(self):
        app = app_lib.make_app({}, self.served.limits, None)
        while not hasattr(app, "routes"):
            app = app.app  # what surrounds the routes
        found = {
            (route.path, method.lower())
            for route in app.routes
            for method in route.methods - {"HEAD"}
        }
        page = {("/", "get"), ("/page.css", "get"), ("/page.js", "get")}
        described = {
            (path, method)
            for path, methods in self.spec["paths"].items()
            for method in methods
        }
        self.assertEqual(described, found - page)
        self.assertEqual(self.spec["info"]["version"], relpos_tf.__version__)

    def test_fields_of_requests_are_those_that_are_read(self):
        schemas = self.spec["components"]["schemas"]
        fields = {one.name for one in dataclasses.fields(queries.Query)}
        own = {"decode_hparams", "is_html", "sizes"}
        fields = fields - own | queries.OPTIONS
        self.assertEqual(schemas["LinesRequest"]["properties"].keys(), fields)
        values = {"q": "a", "source": "en", "target": "de"}
        asked = mock.MagicMock(**{"get.side_effect": values.get})
        libretranslate.parse(asked)
        read = {call.args[0] for call in asked.get.call_args_list}
        texts = schemas["TextsRequest"]
        self.assertEqual(texts["properties"].keys(), read | {"api_key"})
        self.assertEqual(texts["required"], ["q", "source", "target"])

    def test_answers_are_as_described(self):
        paths = self.spec["paths"]
        for content in (
            {"lines": ["ab", "a" * 100], "n_best": 2, "attention": True},
            {"lines": ["Ab. Cd.", "7"], "split_sentences": True},
            {"q": "<b>Ab</b>. 7", "format": "html", **TEXTS},
            {"q": ["ab", ""], **TEXTS},
            {"lines": 7},
            {"q": 7, **TEXTS},
        ):
            status, _, answer = self.served.post(content)
            self.check(paths["/translate"]["post"], status, answer)
        foreign = servers.JSON | {"Sec-Fetch-Site": "cross-site"}
        for path in paths.keys() - {"/translate", "/metrics"}:
            (method,) = paths[path]
            if method == "post":
                status, _, body = self.served.ask("POST", path, "{}", foreign)
                self.check(paths[path][method], status, json.loads(body))
            status, _, body = self.served.ask(
                method.upper(), path, '{"q": "a"}' if method == "post" else None
            )
            self.check(paths[path][method], status, json.loads(body))

    def check(self, described, status, answer):
        response = described["responses"][str(status)]
        if "$ref" in response:
            response = self.spec["components"]["responses"]["Error"]
        schema = response["content"]["application/json"]["schema"]
        validator = jsonschema.Draft202012Validator(
            schema | {"components": self.spec["components"]}
        )
        validator.validate(answer)
        if schema != {"type": "object"}:
            self.assertFalse(validator.is_valid({"other": 1}))
