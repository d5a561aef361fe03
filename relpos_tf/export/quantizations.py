"""The ways to store weights in a CTranslate2 export. No TensorFlow."""

# "none" keeps float32.
ALL = (
    "none",
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
    "int16",
    "float16",
    "bfloat16",
)
