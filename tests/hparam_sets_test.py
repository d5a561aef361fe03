"""The values of the hparams sets: of the papers, and as they were last.

`make golden` runs this module, which writes hparam_sets.json and the page of
hyper-parameters again.
"""

import json
import pathlib
import re

from absl.testing import parameterized

from relpos_tf import fields
from relpos_tf import hparam
from relpos_tf import registry
from tools import reference

# From Shaw et al. (2018), section 4.1.
EVERY_MODEL = (
    "vocab_size=32768,batch_size=4096,optimizer=adam,optimizer_adam_beta1=0.9,"
    "optimizer_adam_beta2=0.98,optimizer_adam_epsilon=1e-9,alpha=0.6,"
    "learning_rate_warmup_steps=4000,label_smoothing=0.1,beam_size=4,"
    "num_hidden_layers=6,"
)
BASE = (
    "hidden_size=512,num_heads=8,filter_size=1024,train_steps=100000,"
    "average_checkpoints=0,layer_prepostprocess_dropout=0.1,"
)
BIG = (
    "hidden_size=1024,num_heads=16,filter_size=4096,train_steps=300000,"
    "average_checkpoints=20,layer_prepostprocess_dropout="
)
SINUSOIDS = "pos=timing,self_attention_type=dot_product"
RELATIVE = (
    "pos=none,self_attention_type=dot_product_relative,"
    "add_relative_to_keys=true,add_relative_to_values=true,"
)
BASE_RELATIVE = (
    f"{RELATIVE}max_relative_position=16,heads_share_relative_embedding=false"
)
BIG_RELATIVE = (
    f"{RELATIVE}max_relative_position=8,heads_share_relative_embedding=true"
)
GOLDEN = pathlib.Path(__file__).with_name("hparam_sets.json")


def resolved():
    """Returns the defaults, and what each set has instead, as JSON."""
    defaults = hparam.HParams().to_dict()
    found = {"defaults": defaults}
    for name in registry.list_hparams():
        values = registry.hparams(name).to_dict()
        found[name] = dict(values.items() - defaults.items())
    return json.dumps(found, indent=2, sort_keys=True) + "\n"


class SetsTest(parameterized.TestCase):
    def test_a_change_of_a_set_or_of_a_default_shows_in_review(self):
        expected = GOLDEN.read_text(encoding="utf-8")
        self.assertEqual(resolved(), expected, "Meant? Run `make golden`.")

    @parameterized.parameters(
        ("transformer_base", BASE + SINUSOIDS),
        ("transformer_relative", BASE + BASE_RELATIVE),
        ("transformer_big", f"{BIG}0.3,{SINUSOIDS}"),
        ("transformer_relative_big", f"{BIG}0.3,{BIG_RELATIVE}"),
        ("transformer_big_enfr", f"{BIG}0.1,{SINUSOIDS}"),
        ("transformer_relative_big_enfr", f"{BIG}0.1,{BIG_RELATIVE}"),
    )
    def test_sets_have_the_values_of_the_paper(self, name, text):
        expected = fields.parse(EVERY_MODEL + text, hparam.HParams)
        hparams = registry.hparams(name).to_dict()
        self.assertEqual({key: hparams[key] for key in expected}, expected)
        # d_z is 64 in both models.
        self.assertEqual(hparams["hidden_size"], 64 * hparams["num_heads"])

    @parameterized.parameters("", "_tiny", "_small", "_multi30k", "_big")
    def test_a_relative_set_differs_only_in_positions(self, size):
        first = registry.hparams(f"transformer{size or '_base'}")
        second = registry.hparams(f"transformer_relative{size}")
        differences = hparam.differences(first, second)
        allowed = fields.parse(BASE_RELATIVE, hparam.HParams)
        self.assertContainsSubset(differences, allowed)
        self.assertContainsSubset({"pos", "self_attention_type"}, differences)

    def test_reference_has_every_set_and_describes_every_field(self):
        page = reference.PAGE.read_text(encoding="utf-8")
        self.assertEqual(page, reference.page(), "Run `make golden`.")
        rows = re.findall(r"^\| (\w+) \| .+ \| (\S*).* \|$", page, re.M)
        names = {*hparam.field_types(), *registry.list_hparams()}
        self.assertEqual({name for name, _ in rows} - {"field", "set"}, names)
        self.assertTrue({"", "Needs"}.isdisjoint(dict(rows).values()))


if __name__ == "__main__":
    GOLDEN.write_text(resolved(), encoding="utf-8")
    reference.PAGE.write_text(reference.page(), encoding="utf-8")
