"""The files of Multi30k, English to German and English to French.

Training and development captions, the test set of 2016, and three later test
sets: Flickr of 2017, ambiguous MSCOCO captions of 2017, and Flickr of 2018.

The addresses are those of the data's own repository. torchtext publishes the
MD5 sums of the gzipped files, sacreBLEU those of the references of 2018.

Reference:
    Elliott et al. (2016), Multi30K; Elliott et al. (2017) and Barrault et al.
    (2018), Findings of the Shared Task on Multimodal Machine Translation.
"""

from relpos_tf.problems import corpora

_RAW = (
    "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
)
# Splits whose files have other names.
_STEMS = {"dev": "val", "test": "test_2016_flickr"}
_MD5 = {
    "train.en": "0065d13af80720a55ca8153d126e6627",
    "train.de": "81ff90b99829c0cd4b1b587d394afd39",
    "train.fr": "6cb767741dcad3931f966fefbc05203f",
    "val.en": "2b69aa9253948ac9f67e94917272dd40",
    "val.de": "6e0e229eb049e3fc99a1ef02fb2d5f91",
    "val.fr": "93fc564584b7e5ba410c761ea5a1c682",
    "test_2016_flickr.en": "ff2c0fcb4893a13bd73414306bc250ae",
    "test_2016_flickr.de": "efd67d314d98489b716b145475101932",
    "test_2016_flickr.fr": "08dc7cd4a662f31718412de95ca9bfe3",
    "test_2017_flickr.en": "005396bac545d880abe6f00bbb7dbbb4",
    "test_2017_flickr.de": "6a8d5c87f6ae19e3d35681aa6fd16571",
    "test_2017_flickr.fr": "cb09af7d2b501f9112f2d6a59fa1360d",
    "test_2017_mscoco.en": "a7b684e0edbef1d4a23660c8e8e743fd",
    "test_2017_mscoco.de": "e8cd6ec2bc8a11fc846fa48a46e3d0bb",
    "test_2017_mscoco.fr": "4995d10954a804d3cdfd907b9fd093e8",
    "test_2018_flickr.en": "a152878809942757a55ce087073486b8",
    "test_2018_flickr.de": "87e00327083dd69feaa029a8f7c1a047",
    "test_2018_flickr.fr": "a64563e986438ed731a6713027c36bfd",
}


def splits(target: str) -> dict[str, list[corpora.Bitext]]:
    """Returns the files of each split, from English to "de" or "fr"."""
    further = "test_2017_flickr", "test_2017_mscoco", "test_2018_flickr"
    found = {}
    for split in ("train", "dev", "test", *further):
        stem = _STEMS.get(split, split)
        sides = [
            corpora.Side(name, corpora.Remote(f"{_RAW}/{name}.gz", _MD5[name]))
            for name in (f"{stem}.en", f"{stem}.{target}")
        ]
        found[split] = [corpora.Bitext(*sides, folders=("multi30k",))]
    return found
