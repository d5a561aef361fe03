"""The Transformer of an `HParams`.

Here, and nowhere below, hyper-parameters become arguments of layers.

Shapes: B batch, S source length, T target length, V vocabulary, F features.
"""

import keras
import tensorflow as tf

from relpos_tf import hparam
from relpos_tf.layers import blocks
from relpos_tf.layers import dropout
from relpos_tf.layers import embeddings
from relpos_tf.layers import projections
from relpos_tf.models import arguments as arguments_lib
from relpos_tf.models import stepwise


@keras.saving.register_keras_serializable(package="relpos_tf")
class Transformer(stepwise.Stepwise, keras.Model):
    """Encoder and decoder, with absolute or relative positions or both.

    The variables exist as soon as the model does.

    Args:
        hparams: `hparam.HParams`, or the dict of one.
        **kwargs: Passed to `keras.Model`.

    Call arguments:
        inputs: `[B, S]` integer tensor of source ids, padded with 0.
        targets: `[B, T]` integer tensor of target ids, padded with 0; not
            shifted: position t sees the targets before t.
        training: bool. Whether to drop.

    Returns:
        Logits, float32 `[B, T, V]`, of the target at each position.

    Example:

    >>> model = Transformer(
    ...     hparam.HParams().replace(vocab_size=11, hidden_size=16)
    ... )
    >>> tuple(model(tf.constant([[5, 1]]), tf.constant([[7, 3, 1]])).shape)
    (1, 3, 11)

    Reference:
        [Shaw et al., 2018](https://arxiv.org/abs/1803.02155);
        [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762).
    """

    def __init__(self, hparams, name="transformer", **kwargs):
        super().__init__(name=name, **kwargs)
        if not isinstance(hparams, hparam.HParams):
            hparams = hparam.HParams().replace(**hparams)
        self.hparams = hparams
        policy = {"dtype": self.dtype_policy}
        size = hparams.vocab_size, hparams.hidden_size
        self.target_embedding = embeddings.TokenEmbedding(
            *size, **policy, name="target_embedding"
        )
        self.source_embedding = self.softmax_embedding = self.target_embedding
        if not hparams.shared_embedding:
            self.source_embedding = embeddings.TokenEmbedding(
                *size, **policy, name="source_embedding"
            )
        if not hparams.shared_embedding_and_softmax_weights:
            self.softmax_embedding = embeddings.TokenEmbedding(
                *size, **policy, name="softmax"
            )
        self.target_space = None
        if hparams.use_target_space_embedding:
            self.target_space = embeddings.TargetSpaceEmbedding(
                hparams.target_space_id,
                hparam.TARGET_SPACES,
                hparams.hidden_size,
                **policy,
                name="target_space_embedding",
            )
        self.source_positions = self.target_positions = None
        if hparams.pos == "emb":
            self.source_positions, self.target_positions = (
                embeddings.LearnedPositions(
                    hparams.max_length, hparams.hidden_size, **policy, name=name
                )
                for name in ("source_positions", "target_positions")
            )
        self.embedding_dropout = dropout.Dropout(
            hparams.layer_prepostprocess_dropout,
            **policy,
            name="embedding_dropout",
        )
        self._add_stacks(policy)
        self.build(None)

    def _add_stacks(self, policy):
        of_encoder, of_decoder = (
            arguments_lib.block_arguments(self.hparams, positions(self.hparams))
            for positions in (
                arguments_lib.encoder_positions,
                arguments_lib.decoder_positions,
            )
        )
        # Tuples, because tf.train.Checkpoint loses layers held in lists.
        self.encoder_blocks = tuple(
            blocks.EncoderBlock(
                *of_encoder, **policy, name=f"encoder_layer_{i}"
            )
            for i in range(self.hparams.encoder_layers)
        )
        self.decoder_blocks = tuple(
            blocks.DecoderBlock(
                *of_decoder,
                arguments_lib.source_positions(self.hparams),
                **policy,
                name=f"decoder_layer_{i}",
            )
            for i in range(self.hparams.decoder_layers)
        )
        self.encoder_norm = self.decoder_norm = None
        if self.hparams.layer_preprocess_sequence == "n":
            # The last sum of a pre-norm stack has no norm after it.
            self.encoder_norm, self.decoder_norm = (
                projections.LayerNorm(
                    epsilon=self.hparams.norm_epsilon, **policy, name=name
                )
                for name in ("encoder_norm", "decoder_norm")
            )

    def build(self, input_shape):
        if self.built:
            return
        features = (None, None, self.hparams.hidden_size)
        for layer in self._flatten_layers(include_self=False, recursive=False):
            if not layer.built:
                layer.build(features)
        self.built = True

    def call(self, inputs, targets, training=False):
        x = self.features(inputs, targets, training=training)
        return self.softmax_embedding.logits(x)

    def features(self, inputs, targets, training=False):
        """Returns what the softmax table turns into logits: `[B, T, F]`."""
        memory = self.encode(inputs, training=training)
        return self._decode(targets, memory, inputs, training)

    def softmax_table(self):
        """Returns the table that turns features into logits: `[V, F]`."""
        return self.softmax_embedding.table()

    def encode(self, inputs, training=False):
        """Encodes source ids `[B, S]`: returns `[B, S, F]`."""
        x = self._embed_source(inputs, training)
        may_attend = stepwise.is_token(inputs)  # [B, 1, 1, S]
        for block in self.encoder_blocks:
            x = block(x, may_attend=may_attend, training=training)
        return x if self.encoder_norm is None else self.encoder_norm(x)

    def attention_weights(self, inputs, targets):
        """Returns what every head attends to in a teacher-forced pass.

        Args:
            inputs: As in the call.
            targets: As in the call.

        Returns:
            A dict of lists with a tensor for each layer: `encoder`,
            `[B, H, S, S]`, `decoder`, `[B, H, T, T]`, and `cross`, the
            decoder's attention to the source, `[B, H, T, S]`.
        """
        weights = {"encoder": [], "decoder": [], "cross": []}
        may_attend = stepwise.is_token(inputs)
        x = self._embed_source(inputs)
        for block in self.encoder_blocks:
            x, own = block(x, may_attend=may_attend, return_weights=True)
            weights["encoder"].append(own)
        memory = x if self.encoder_norm is None else self.encoder_norm(x)
        x = self._embed_targets(targets)
        for block in self.decoder_blocks:
            x, own, cross = block(
                x, memory, may_attend=may_attend, return_weights=True
            )
            weights["decoder"].append(own)
            weights["cross"].append(cross)
        return weights

    def decode(self, targets, memory, inputs, training=False):
        """Scores all targets at once.

        Args:
            targets: `[B, T]` integer tensor, not shifted.
            memory: `[B, S, F]`: what `encode` returned for `inputs`.
            inputs: `[B, S]` integer tensor: tells padding from tokens.
            training: bool.

        Returns:
            Logits, float32 `[B, T, V]`.
        """
        x = self._decode(targets, memory, inputs, training)
        return self.softmax_embedding.logits(x)

    def _embed_source(self, inputs, training=False):
        """Embeds source ids, with absolute positions: `[B, S, F]`."""
        x = self.source_embedding(inputs)  # [B, S, F]
        if self.target_space is not None:
            x = self.target_space(x)
        x = self._add_positions(x, self.source_positions, 0)
        return self.embedding_dropout(x, training=training)

    def _embed_targets(self, targets, training=False):
        """Embeds the targets before each position: `[B, T, F]`."""
        shifted = tf.pad(targets, [[0, 0], [1, 0]])[:, :-1]  # [B, T]
        x = self.target_embedding(shifted)  # [B, T, F]
        x = self._add_positions(x, self.target_positions, 0)
        return self.embedding_dropout(x, training=training)

    def _decode(self, targets, memory, inputs, training):
        x = self._embed_targets(targets, training)
        may_attend = stepwise.is_token(inputs)
        for block in self.decoder_blocks:
            x = block(x, memory, may_attend=may_attend, training=training)
        return x if self.decoder_norm is None else self.decoder_norm(x)

    def _add_positions(self, x, learned, start):
        positions = start + tf.range(tf.shape(x)[1])
        if learned is not None:
            return x + learned(positions)
        if self.hparams.pos == "timing":
            signal = embeddings.timing_signal(positions, x.shape[-1])
            return x + tf.cast(signal, x.dtype)
        return x

    def get_config(self):
        return super().get_config() | {"hparams": self.hparams.to_dict()}
