#!/usr/bin/env bash
# Measures training, decoding and attention on the first GPU, or on the CPU if
# there is none, with benchmarks/gpu.py. Flags are passed on:
#   benchmarks/gpu.sh --out gpu.json
#   benchmarks/gpu.sh --small        # a minute, to test that everything runs
set -euo pipefail
exec "${PYTHON:-python3}" "$(dirname "${BASH_SOURCE[0]}")/gpu.py" "$@"
