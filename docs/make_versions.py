"""The list of the versions of the documentation, and the page that leads to the newest.

``python docs/make_versions.py FOLDER`` looks at the folders ``dev`` and ``vX.Y.Z`` in it, and
writes ``switcher.json``, which the pages read for their menu of versions, and ``index.html``.
"""

import json
import re
import sys
from pathlib import Path


def versions(folder: Path) -> list[str]:
    """Return the versions that have pages, the newest release first and dev last."""
    found = [path.name for path in folder.iterdir() if re.fullmatch(r"v\d+\.\d+\.\d+", path.name)]
    found.sort(key=lambda name: tuple(map(int, name[1:].split("."))), reverse=True)
    return found + (["dev"] if (folder / "dev").is_dir() else [])


def main(folder: Path) -> None:
    """Write both files."""
    names = versions(folder)
    entries = [
        {
            "version": name,
            "name": f"{name} (newest)" if k == 0 and name != "dev" else name,
            "url": f"../{name}/",
        }
        for k, name in enumerate(names)
    ]
    (folder / "switcher.json").write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    page = (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>bbl</title><meta '
        f'http-equiv="refresh" content="0; url={names[0]}/"></head><body><p><a '
        f'href="{names[0]}/">Documentation of bbl</a></p></body></html>\n'
    )
    (folder / "index.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
