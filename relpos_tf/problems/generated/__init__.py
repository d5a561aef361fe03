"""Generated English-German text: numbers, dates, quantities, lists of them.

`english` and `german` put numbers and dates into words, `phrases` draws random
phrases, and `lists` joins phrases to sentences of any length.
"""
