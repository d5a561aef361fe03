"""Problems: parallel text, made into a tokenizer and files of ids.

`problem` defines a problem; `translate` and `algorithmic` register the shipped
ones; `corpora` finds their files or fetches them; `prepare` makes the files.
"""
