"""Builds an environment for OpenNMT-tf.

    python benchmarks/peers/build.py build/peers

OpenNMT-tf needs a TensorFlow that no Python after 3.11 has, so a Python 3.10
or 3.11 must be on the PATH, or be named by --python. Takes about 2.5 GB. An
environment that is complete is kept. Needs the standard library only.
"""

import argparse
import pathlib
import shutil
import subprocess

# Without the pin, pip may take no TensorFlow at all.
REQUIREMENTS = ["OpenNMT-tf==2.32.0", "tensorflow==2.13.1"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--python", help="an interpreter, 3.10 or 3.11")
    args = parser.parse_args()
    names = [args.python] if args.python else ["python3.11", "python3.10"]
    python = next(filter(None, map(shutil.which, names)), None)
    if not python:
        raise SystemExit(
            f"Expected Python 3.10 or 3.11, for OpenNMT-tf. Received: "
            f"{', '.join(names)}. Name one by --python."
        )
    folder = args.folder / "opennmt"
    complete = folder / "complete"
    if complete.exists():
        print(f"{folder} is complete.")
        return
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, *REQUIREMENTS], check=True)
    complete.touch()


if __name__ == "__main__":
    main()
