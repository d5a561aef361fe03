"""The report of a comparison: its content, and the files that show it.

`content` makes the dict of report.json. `sections` and `tables` turn it into
text and tables, once, as plain data; `figures` and `attention_figures` draw.
`markdown` and `html` render all that, and `files` writes it.
"""
