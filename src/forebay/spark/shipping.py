"""This package as a zip, so that executors need not have it installed.

Only `spark/` and what it imports is ever loaded there: the standard library, PySpark and PyArrow are enough.
"""

from __future__ import annotations

import tempfile
import zipfile
from hashlib import blake2b
from pathlib import Path

import forebay
from forebay.spark.own_folder import own_folder, temporary_folder

_SUFFIXES = frozenset({".py", ".sql", ".typed"})
_STAMP = (1980, 1, 1, 0, 0, 0)


def package_zip(folder: Path | None = None) -> Path:
    """The zip of the package as it is installed here; made once, its name says what is in it."""
    root = Path(forebay.__file__).parent
    files = sorted(path for path in root.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    content = [(f"forebay/{path.relative_to(root).as_posix()}", path.read_bytes()) for path in files]
    mark = blake2b(digest_size=8)
    for name, data in content:
        mark.update(f"{name} {len(data)}\n".encode())
        mark.update(data)
    target = (folder or own_folder(temporary_folder())) / f"forebay-{forebay.__version__}-{mark.hexdigest()}.zip"
    # A machine that lost its power may have kept the name and lost the content.
    if not zipfile.is_zipfile(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        # Several processes may do this at once: each writes a file of its own, and the last one stays.
        with (
            tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file,
            zipfile.ZipFile(file, "w") as archive,
        ):
            for name, data in content:
                archive.writestr(zipfile.ZipInfo(name, _STAMP), data, zipfile.ZIP_DEFLATED)
        Path(file.name).replace(target)
    return target
