"""The files of WMT 2014, English to German and English to French.

Training text as in tensor2tensor: Europarl v7 and Common Crawl for both;
News Commentary v12 for German; News Commentary v9, the UN corpus and the
10^9 corpus for French. Development set newstest2013, test set newstest2014
with all its sentences (`sacrebleu -t wmt14/full`).

The addresses are on statmt.org. TensorFlow Datasets publishes the sha256
sums, sacreBLEU the MD5 sums of the test sets.
"""

from relpos_tf.problems import corpora

_STATMT = "https://www.statmt.org"
_FOLDERS = "wmt14", "newstest"

_EUROPARL = corpora.Remote(
    f"{_STATMT}/wmt13/training-parallel-europarl-v7.tgz",
    "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
)
_COMMON_CRAWL = corpora.Remote(
    f"{_STATMT}/wmt13/training-parallel-commoncrawl.tgz",
    "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
)
_NEWS_V9 = corpora.Remote(
    f"{_STATMT}/wmt14/training-parallel-nc-v9.tgz",
    "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
)
_NEWS_V12 = corpora.Remote(
    "https://data.statmt.org/wmt17/translation-task/"
    "training-parallel-nc-v12.tgz",
    "2b45f30ef1d550d302fd17dd3a5cbe19134ccc4c2cf50c2dae534aee600101a2",
)
# No checksum of these two is published.
_UNITED_NATIONS = corpora.Remote(f"{_STATMT}/wmt13/training-parallel-un.tgz")
_GIGA = corpora.Remote(f"{_STATMT}/wmt10/training-giga-fren.tar")
_NEWSTEST2013 = corpora.Remote(
    "https://statmt.org/wmt13/test.tgz", "48eca5d02f637af44e85186847141f67"
)
_NEWSTEST2014 = corpora.Remote(
    "https://statmt.org/wmt14/test-full.tgz",
    "a8cd784e006feb32ac6f3d9ec7eb389a",
)


def splits(target: str) -> dict[str, list[corpora.Bitext]]:
    """Returns the corpora of each split, from English to "de" or "fr"."""
    pair = f"{target}-en"
    train = [
        _training(_EUROPARL, f"training/europarl-v7.{pair}", target),
        _training(_COMMON_CRAWL, f"commoncrawl.{pair}", target),
    ]
    if target == "de":
        news = f"training/news-commentary-v12.{pair}"
        train += [_training(_NEWS_V12, news, target)]
    else:
        news = f"training/news-commentary-v9.{pair}"
        train += [
            _training(_NEWS_V9, news, target),
            _training(_UNITED_NATIONS, f"un/undoc.2000.{pair}", target),
            _training(_GIGA, "giga-fren.release2.fixed", target, ".gz"),
        ]
    dev = "test/newstest2013-src.en.sgm", f"test/newstest2013-src.{target}.sgm"
    stem = f"test-full/newstest2014-{target}en"
    test = f"{stem}-src.en.sgm", f"{stem}-ref.{target}.sgm"
    return {
        "train": train,
        "dev": [_held_out("newstest2013", _NEWSTEST2013, target, dev)],
        "test": [_held_out("newstest2014", _NEWSTEST2014, target, test)],
    }


def _training(
    remote: corpora.Remote, stem: str, target: str, suffix: str = ""
) -> corpora.Bitext:
    """Returns a corpus in an archive; `stem` is without the language."""
    name = stem.rsplit("/", 1)[-1]
    sides = [
        corpora.Side(f"{name}.{language}", remote, f"{stem}.{language}{suffix}")
        for language in ("en", target)
    ]
    return corpora.Bitext(*sides, folders=_FOLDERS)


def _held_out(
    name: str,
    remote: corpora.Remote,
    target: str,
    members: tuple[str, str],
) -> corpora.Bitext:
    """Returns a test set; `--tmp_dir` may hold it as plain text."""
    sides = [
        corpora.Side(f"{name}-en{target}.{language}", remote, member)
        for language, member in zip(("en", target), members, strict=True)
    ]
    return corpora.Bitext(*sides, folders=_FOLDERS)
