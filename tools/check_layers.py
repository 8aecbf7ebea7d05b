#!/usr/bin/env python3
"""Checks that no file of src/ includes a header of a library that its own does not link.

Every library may see all of src/, so the compiler does not notice an include that goes up or across.
A file belongs to the libraries that the nearest CMakeLists.txt declares with dak_library().
"""

import re
import sys
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"
LIBRARY = re.compile(r"dak_library\((\w+)([^)]*)\)")
LINK = re.compile(r"target_link_libraries\((\w+)([^)]*)\)")  # where a library is optional
MORE_LINKS = re.compile(r"target_link_libraries\((dak_\w+) PUBLIC([^)]*)\)")  # CUDA's, on condition
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
SOURCES = {".h", ".cpp", ".cuh", ".cu"}


def read_libraries():
    """(libraries of a folder, libraries that a library names)"""
    owner, links = {}, {}
    for cmake in sorted(SRC.rglob("CMakeLists.txt")):
        text = re.sub(r"#.*", "", cmake.read_text(encoding="utf-8"))
        for name, arguments in LIBRARY.findall(text):
            owner.setdefault(cmake.parent, set()).add(name)
            links[name] = set(re.findall(r"\bdak_\w+", arguments)) - {name}
        for name, arguments in LINK.findall(text):
            if name in links:
                links[name] |= set(re.findall(r"\bdak_\w+", arguments)) - {name}
        for name, arguments in MORE_LINKS.findall(text):
            links[name] |= set(re.findall(r"\bdak_\w+", arguments))
    return owner, links


def closure(name, links):
    seen, todo = set(), [name]
    while todo:
        for linked in links.get(todo.pop(), ()):
            if linked not in seen:
                seen.add(linked)
                todo.append(linked)
    return seen


def owner_of(path, owner):
    return next((owner[folder] for folder in path.parents if folder in owner), set())


def main():
    owner, links = read_libraries()
    visible = {name: closure(name, links) for name in links}
    faults = [f"{name} links itself" for name in links if name in visible[name]]
    for path in sorted(SRC.rglob("*")):
        if path.suffix not in SOURCES:
            continue
        own = owner_of(path, owner)
        for header in INCLUDE.findall(path.read_text(encoding="utf-8")):
            other = owner_of(SRC / header, owner)
            if not (SRC / header).is_file():
                faults.append(f"{path.relative_to(SRC)}: \"{header}\" is not a path from src/")
            elif not other & own.union(*(visible[name] for name in own)):
                faults.append(f"{path.relative_to(SRC)} ({', '.join(sorted(own))}) includes "
                              f"\"{header}\" of {', '.join(sorted(other))}, which it does not link")
    for fault in faults:
        print(f"layers: {fault}")
    if not faults:
        print(f"layers: {len(links)} libraries include only what they link")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
