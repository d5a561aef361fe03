"""Text as ids: tokenizers, files of ids, and the plan of batches."""
