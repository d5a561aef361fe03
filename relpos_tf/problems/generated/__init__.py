"""Generated English-German text: numbers, dates, quantities, lists of them.

`english` and `german` put numbers and dates into words, and `phrases` draws
random phrases.
"""
