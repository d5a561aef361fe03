"""Builds the environments of the peers in a temporary folder.

    python benchmarks/peers/build.py build/peers

OpenNMT-tf needs a TensorFlow that no Python after 3.11 has, so a Python 3.10
or 3.11 must be on the PATH, or be named by --python. Takes about 2.5 GB. An
environment that is complete is kept. Needs the standard library only.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys

ENVIRONMENTS = {
    # Without the pin, pip may take no TensorFlow at all.
    "opennmt": ["OpenNMT-tf==2.32.0", "tensorflow==2.13.1"],
    "ctranslate2": ["ctranslate2==4.8.5", "numpy"],
}
VERSIONS = (3, 10), (3, 11)


def version(python):
    """Returns the version of an interpreter, as a pair; () if it fails."""
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return tuple(map(int, done.stdout.split()))


def find_python(named):
    """Returns an interpreter that OpenNMT-tf runs on."""
    names = [named] if named else [sys.executable, "python3.11", "python3.10"]
    for name in names:
        path = shutil.which(name)
        if path and version(path) in VERSIONS:
            return path
    raise SystemExit(
        f"Expected Python 3.10 or 3.11, for OpenNMT-tf. Received: "
        f"{', '.join(names)}. Name one by --python."
    )


def build(python, folder, requirements):
    """Builds one environment, unless it is complete."""
    done = folder / "complete"
    if done.exists() and done.read_text() == "\n".join(requirements):
        print(f"{folder} is complete.")
        return
    print(f"{folder}: {', '.join(requirements)}", flush=True)
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    pip += ["--disable-pip-version-check", *requirements]
    if subprocess.run(pip).returncode:
        raise SystemExit(f"pip failed in {folder}. Its error is above.")
    done.write_text("\n".join(requirements))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--python", help="an interpreter, 3.10 or 3.11")
    args = parser.parse_args()
    python = find_python(args.python)
    for name, requirements in ENVIRONMENTS.items():
        build(python, args.folder / name, requirements)


if __name__ == "__main__":
    main()
