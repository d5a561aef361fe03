"""The hparams sets: recipes, each a function that returns an `HParams`.

| set | content |
|---|---|
| `transformer_base`, `transformer_big` | the paper's absolute baselines |
| `transformer_relative`, `transformer_relative_big` | relative positions only |
| `transformer_big_enfr`, `transformer_relative_big_enfr` | dropout .1 |
| `transformer_{relative_,}{tiny,small}` | small models for CPUs |
| `transformer_{relative_,}multi30k` | the recipe for small data |
| `transformer_relative_and_absolute` | relative positions and sinusoids |
| `transformer_learned` | learned absolute positions |
| `transformer_vaswani_base`, `transformer_vaswani_big` | Vaswani et al. 2017 |
| `transformer_localness_{fixed,layer,query}` | Yang et al. 2018 |
| `transformer_{base,base_v1,base_v2,big,tiny}_t2t` | tensor2tensor |
| `transformer_relative{,_big,_tiny}_t2t` | tensor2tensor, relative positions |

Other positions are fields of any set, see `docs/positions.md`. To add a set of
your own, write a folder with an `__init__.py` such as

    from relpos_tf import registry

    @registry.register_hparams
    def my_set():
        small = registry.hparams("transformer_relative_small")
        return small.replace(hidden_size=128)

and name that folder with `--usr_dir`.
"""

# By the full name: a set is registered once, by whatever name it is imported.
from relpos_tf.hparams import localness
from relpos_tf.hparams import relative
from relpos_tf.hparams import t2t
from relpos_tf.hparams import transformer
