"""Problems: parallel text, made into a tokenizer and TFRecord files.

`problem` defines a problem; `translate` and `algorithmic` register the shipped
ones; `download` finds their files or fetches them.
"""
