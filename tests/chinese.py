"""Two hundred lines of Chinese, and the same with one wrong character each."""

# No character comes twice, so that every match of n-grams is at its place.
REFERENCES = tuple(
    "".join(chr(0x4E00 + 15 * line + i) for i in range(15))
    for line in range(200)
)
HYPOTHESES = tuple(f"{line[:7]}錯{line[8:]}" for line in REFERENCES)
# Of 15 characters the 8th is wrong, and so are 2 pairs of 14, 3 triples of 13
# and 4 runs of four of 12.
BLEU = 100 * ((14 / 15) * (12 / 14) * (10 / 13) * (8 / 12)) ** 0.25
