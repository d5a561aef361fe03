"""The ways to store weights in an export. No TensorFlow."""

# Of CTranslate2; "none" keeps float32. It writes bfloat16 by PyTorch alone.
ALL = (
    "none",
    "int8",
    "int8_float32",
    "int8_float16",
    "int16",
    "float16",
)
# Of LiteRT, which computes in float32 with float16 weights, and multiplies
# int8 weights with inputs that it rounds to int8 as it goes.
LITERT = ("none", "int8", "float16")
