"""Problems: parallel text, made into a tokenizer and TFRecord files.

`problem.py` says what a problem is; `translate.py` and `synthetic.py` register
the shipped ones; `download.py` finds their files or fetches them.
"""
