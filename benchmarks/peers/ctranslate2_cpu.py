"""Times CTranslate2's beam search on a CPU, in its own environment.

    python benchmarks/peers/ctranslate2_cpu.py --compute_type int8

The model has this project's shape: normalisation after each sum, attention
without biases, one table for both embeddings and the softmax, a zero vector
as the decoder's first input. README.md in this directory describes the
comparison.
"""

import random
import tempfile

import peer

SPECIAL = ["<unk>", "<s>", "</s>"]


class RandomWeights:
    """Fills the parts of a model's specification with random weights."""

    def __init__(self, args, np):
        self.size, self.rng, self.np = args, np.random.default_rng(1), np

    def matrix(self, rows, columns):
        """Returns `[rows, columns]` Glorot-uniform numbers."""
        limit = (6 / (rows + columns)) ** 0.5
        numbers = self.rng.uniform(-limit, limit, [rows, columns])
        return numbers.astype(self.np.float32)

    def norm(self, spec):
        spec.gamma = self.np.ones(self.size.hidden, self.np.float32)
        spec.beta = self.np.zeros(self.size.hidden, self.np.float32)

    def self_attention(self, spec):
        hidden = self.size.hidden
        spec.linear[0].weight = self.matrix(3 * hidden, hidden)
        spec.linear[1].weight = self.matrix(hidden, hidden)
        self.norm(spec.layer_norm)
        if self.size.relative:
            shape = 2 * self.size.k + 1, hidden // self.size.heads
            spec.relative_position_keys = self.matrix(*shape)
            spec.relative_position_values = self.matrix(*shape)

    def memory_attention(self, spec):
        hidden = self.size.hidden
        spec.linear[0].weight = self.matrix(hidden, hidden)
        spec.linear[1].weight = self.matrix(2 * hidden, hidden)
        spec.linear[2].weight = self.matrix(hidden, hidden)
        self.norm(spec.layer_norm)

    def feed_forward(self, spec):
        for linear, shape in (
            (spec.linear_0, (self.size.filter, self.size.hidden)),
            (spec.linear_1, (self.size.hidden, self.size.filter)),
        ):
            linear.weight = self.matrix(*shape)
            linear.bias = self.np.zeros(shape[0], self.np.float32)
        self.norm(spec.layer_norm)


def save_model(args, words, ctranslate2, folder):
    """Writes a model of random weights to a directory."""
    import numpy as np

    spec = ctranslate2.specs.TransformerSpec.from_config(
        args.layers,
        args.heads,
        with_relative_position=bool(args.relative),
        pre_norm=False,
    )
    weights = RandomWeights(args, np)
    table = weights.matrix(args.vocab, args.hidden)
    spec.encoder.embeddings[0].weight = table
    spec.decoder.embeddings.weight = table
    spec.decoder.projection.weight = table
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = True
    spec.decoder.start_from_zero_embedding = True
    for layer in [*spec.encoder.layer, *spec.decoder.layer]:
        weights.self_attention(layer.self_attention)
        weights.feed_forward(layer.ffn)
    for layer in spec.decoder.layer:
        weights.memory_attention(layer.attention)
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.validate()
    spec.optimize()
    spec.save(folder)


def main():
    parser = peer.size_parser(__doc__)
    parser.add_argument(
        "--compute_type", default="float32", help="float32 or int8"
    )
    args = parser.parse_args()
    import ctranslate2

    words = SPECIAL + [f"w{i}" for i in range(args.vocab - len(SPECIAL))]
    with tempfile.TemporaryDirectory() as folder:
        save_model(args, words, ctranslate2, folder)
        translator = ctranslate2.Translator(
            folder,
            device="cpu",
            inter_threads=1,
            intra_threads=args.threads,
            compute_type=args.compute_type,
        )
    pick = random.Random(1).choices
    sources = [
        pick(words[len(SPECIAL) :], k=args.src_len) for _ in range(args.batch)
    ]

    def decode():
        results = translator.translate_batch(
            sources,
            beam_size=args.beam,
            max_decoding_length=args.out_len,
            # Rules out the end of a sentence before that length.
            min_decoding_length=args.out_len,
        )
        return [len(result.hypotheses[0]) for result in results]

    name = f"CTranslate2 {ctranslate2.__version__}, {args.compute_type}"
    peer.report(name, decode, args)


if __name__ == "__main__":
    main()
