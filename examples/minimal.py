"""The idea on one page: from phrases to a translator with relative positions.

    python examples/minimal.py

trains a small Transformer (Vaswani et al., 2017) on English phrases and their
German translations, and translates 500 phrases that it has not seen.

Its only notion of order is that of Shaw et al. (2018). Self-attention turns
x[1] to x[n] into z[1] to z[n] by their equations 3 and 4,

    z[i]   = sum_j alpha[i,j] (x[j] W^V + a^V[i,j])
    e[i,j] = x[i] W^Q (x[j] W^K + a^K[i,j])^T / sqrt(d_z)

where alpha is the softmax of e over j, and a^V[i,j] and a^K[i,j] are learned
vectors of the distance j - i, clipped to K on both sides. `layers.Shaw` adds
these vectors to the usual attention, `layers.TransformerAttention`.

483 of the 500 phrases (96.6 %) come out exactly right (seed 1). It takes 224
seconds of processor time, less than four minutes of one core.

Shapes: B batch, S source length, T target length, F features, V vocabulary.
"""

import functools

import keras
import numpy as np
import tensorflow as tf

from relpos_tf import layers
from relpos_tf import registry
from relpos_tf.data import tokenizer
from relpos_tf.utils import text as text_lib

F, HEADS, BLOCKS, K = 128, 4, 2, 16
BATCH_SIZE = 256  # pairs
LONGEST = 60  # ids of a translation
padded = functools.partial(keras.utils.pad_sequences, padding="post")


def self_attention(x, **mask):
    shaw = layers.Shaw(K, heads_share=True)
    attention = layers.TransformerAttention(F, HEADS, positions=[shaw])
    return add_and_norm(x, attention(x, **mask))


def source_attention(x, memory, mask):
    # Source and target positions have no distance, so there is no scheme.
    attention = layers.TransformerAttention(F, HEADS)
    return add_and_norm(x, attention(x, memory, may_attend=mask))


def feed_forward(x):
    return add_and_norm(x, layers.FeedForward(4 * F, F)(x))


def add_and_norm(x, y):
    """Returns LayerNorm(x + Dropout(y))."""
    return layers.Residual(norm_before=False, norm_after=True, rate=0.1)(x, y)


def transformer(vocab_size):
    """Returns a model from `[B, S]` and `[B, T]` ids to logits `[B, T, V]`.

    The first are the source. The second are the targets so far, shifted: each
    position has the id before it, and the logits of its own.
    """
    source, before = (keras.Input([None], dtype="int32") for _ in range(2))
    embedding = layers.TokenEmbedding(vocab_size, F)
    is_token = keras.ops.not_equal(source, 0)[:, None, None]  # [B, 1, 1, S]
    memory = embedding(source)  # [B, S, F]
    for _ in range(BLOCKS):
        memory = self_attention(memory, may_attend=is_token)
        memory = feed_forward(memory)
    x = embedding(before)  # [B, T, F]
    for _ in range(BLOCKS):
        x = self_attention(x, use_causal_mask=True)
        x = source_attention(x, memory, is_token)
        x = feed_forward(x)
    return keras.Model([source, before], keras.layers.Dense(vocab_size)(x))


def batches(pairs):
    """Yields sources `[B, S]` and targets `[B, T]` of pairs of like lengths."""
    while True:
        order = np.random.permutation(len(pairs)).tolist()
        order.sort(key=lambda i: max(map(len, pairs[i])))
        for start in np.random.permutation(range(0, len(order), BATCH_SIZE)):
            batch = [pairs[i] for i in order[start : start + BATCH_SIZE]]
            yield [padded(side) for side in zip(*batch, strict=True)]


def train(model, pairs, steps):
    """Makes `steps` updates; returns the loss of each, in nats per token."""
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=3e-3, warmup_steps=steps // 5
    )
    optimizer = keras.optimizers.Adam(rate, beta_2=0.98)
    optimizer.build(model.trainable_variables)
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=0
    )

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
    def update(source, target):
        before = tf.pad(target, [[0, 0], [1, 0]])[:, :-1]
        with tf.GradientTape() as tape:
            logits = model([source, before], training=True)
            loss = cross_entropy(target, logits)
        gradients = tape.gradient(loss, model.trainable_variables)
        # Dense: Keras' Adam does not add the rows of an id that comes twice.
        optimizer.apply([tf.convert_to_tensor(g) for g in gradients])
        return loss

    losses, data = [], batches(pairs)
    for step in range(1, steps + 1):
        losses.append(float(update(*next(data))))
        if step % 100 == 0:
            print(f"update {step}: loss {np.mean(losses[-100:]):.3f}")
    return losses


def translate(model, tokens, lines):
    """Translates lines, always taking the most likely next id."""
    source = padded([tokens.encode(line) for line in lines])
    ids = np.zeros([len(lines), 1], np.int32)
    while ids.shape[1] <= LONGEST and (ids != text_lib.EOS_ID).all(1).any():
        logits = model([source, ids])
        ids = np.append(ids, np.argmax(logits[:, -1:], axis=-1), axis=1)
    return [tokens.decode(row) for row in ids]  # up to the first EOS


def main(steps=500, lines=500, data_dir="data"):  # lines: of the test set
    keras.utils.set_random_seed(1)
    problem = registry.problem("translate_ende_phrases")
    problem.prepare(data_dir)  # learns a vocabulary of subwords
    tokens = tokenizer.load(problem.tokenizer_path(data_dir))
    pairs = [[*map(tokens.encode, p)] for p in problem.splits["train"](None)]
    model = transformer(tokens.vocab_size)
    losses = train(model, pairs, steps)
    test = problem.splits["test"](None)
    sources, references = zip(*[*test][:lines], strict=True)
    found = translate(model, tokens, sources)
    for source, translation in [*zip(sources, found, strict=True)][:5]:
        print(f"{source} -> {translation}")
    right = sum(a == b for a, b in zip(found, references, strict=True))
    print(f"exactly right: {right} of {len(found)}")
    return losses, found


if __name__ == "__main__":
    main()
