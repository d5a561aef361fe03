"""Exports of trained models. This module needs no TensorFlow."""

# How a CTranslate2 export may store its weights; "none" keeps float32.
QUANTIZATIONS = (
    "none",
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
    "int16",
    "float16",
    "bfloat16",
)
