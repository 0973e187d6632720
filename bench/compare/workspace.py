"""The temporary directory of a session: the source file, the targets, the servers' folders."""

import hashlib
import os
import pwd
import shutil
import tempfile
import time
from pathlib import Path

from compare import settings
from compare.host import mount_of

BLOCK_BYTES = 1 << 20
FILE_NAME = "random.bin"
TREE_NAME = "tree"
TREE_DIRECTORIES = 20
TREE_FILE_BYTES = 16 << 10
TREE_FILES_FELT = 2000  # The removal of fewer files costs the next run nothing that is seen.
FREED_INODE_S = 65.0  # RECENTCY_MIN of fs/ext4/ialloc.c is 60 s.
MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs", "devtmpfs"}
CANDIDATES = ("/var/tmp", "/tmp", "/home", "/srv", "/data", "/scratch", "/mnt")


class Workspace:
    """Makes everything below one fresh directory, and removes that directory at the end."""

    def __init__(
        self, parent, size_bytes: int, tree_files: int, trees_a_round: int, rounds: int, images=0
    ):
        self.size_bytes, self.tree_files = size_bytes, tree_files
        parent = Path(parent) if parent else roomiest_parent()
        self.tree_bytes = tree_files * TREE_FILE_BYTES
        needed = 2 * size_bytes + (1 + trees_a_round) * self.tree_bytes + size_bytes // 10
        needed += images * settings.image_bytes(size_bytes)
        found = shutil.disk_usage(parent).free
        trees_later = trees_a_round * (rounds - 1) * self.tree_bytes
        self.keeps_all_trees = found // 2 >= needed + trees_later
        if found < needed:
            raise SystemExit(
                f"peers: {parent}: needs {needed} free bytes for source and target, found {found}."
                " Choose --dir or a smaller --size."
            )
        self.root = Path(tempfile.mkdtemp(prefix="haul-peers-", dir=parent)).resolve()
        self.root.chmod(0o755)  # Some servers drop root, and must still reach the source.
        self.source = self.root / "source" / FILE_NAME
        self.targets = self.root / "targets"
        self.scratch, self.kept = self.root / "scratch", self.root / "kept"
        for folder in (self.source.parent, self.targets, self.scratch, self.kept):
            folder.mkdir()
        self.source_sha256 = ""
        self.servers, self.trees_removed_at = 0, None
        self.tree = self.source.parent / TREE_NAME
        self.images = []

    def remove(self) -> None:
        for image in self.images:
            image.remove()
        shutil.rmtree(self.root, ignore_errors=True)

    def add_image(self, kind: str):
        """The setting of a file system in an image file; it holds the source, and the targets."""
        image = settings.Image(kind, self.root, settings.image_bytes(self.size_bytes))
        self.images.append(image)
        image.make()
        for folder in (self.source_in(image.folder).parent, image.folder / "targets"):
            folder.mkdir()
        with open(self.source_in(image.folder), "wb") as copy, open(self.source, "rb") as source:
            shutil.copyfileobj(source, copy, BLOCK_BYTES)
            copy.flush()
            os.fsync(copy.fileno())
        shown = f"{settings.file_system_of(image.folder)} (image)"
        return settings.Setting(kind, shown, settings.LARGE_FILES, True, image.folder)

    def source_in(self, folder) -> Path:
        """The source on a setting's file system; without a folder, on the directory's own."""
        return (folder or self.root) / "source" / FILE_NAME

    def make_source(self) -> None:
        """Random bytes, every block allocated, on the disk before anything is measured."""
        digest, left = hashlib.sha256(), self.size_bytes
        with open(self.source, "wb") as file:
            while left:
                block = os.urandom(min(left, BLOCK_BYTES))
                file.write(block)
                digest.update(block)
                left -= len(block)
            file.flush()
            os.fsync(file.fileno())
        self.source_sha256 = digest.hexdigest()

    def make_tree(self) -> None:
        """Files of 16 KiB, each of other bytes, in 20 directories."""
        block = os.urandom(BLOCK_BYTES)
        for number in range(self.tree_files):
            folder = self.tree / f"d{number % TREE_DIRECTORIES:02}"
            if number < TREE_DIRECTORIES:
                folder.mkdir(parents=True)
            at = number * 37 % (BLOCK_BYTES - TREE_FILE_BYTES)
            (folder / f"f{number:05}").write_bytes(block[at : at + TREE_FILE_BYTES])
        os.sync()

    def warm_tree(self) -> None:
        for folder in self.tree.iterdir():
            for file in folder.iterdir():
                file.read_bytes()

    def warm_source(self, folder=None) -> None:
        """Reads the whole source, so that it is in the page cache."""
        buffer = bytearray(BLOCK_BYTES)
        with open(self.source_in(folder), "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    def fresh_target(self, name: str, owner, on=None) -> Path:
        """An empty directory for one run, given to the user a server drops to."""
        folder = (on or self.root) / "targets" / name
        folder.mkdir()
        if owner:
            user = pwd.getpwnam(owner)
            os.chown(folder, user.pw_uid, user.pw_gid)
        return folder

    def remove_target(self, folder: Path) -> None:
        """Removes a run's target and lets the file system finish that before the next run."""
        shutil.rmtree(folder, ignore_errors=True)
        self._commit(folder.parent)

    def keep_target(self, folder: Path) -> None:
        """Leaves a run's tree where it is until the last one has ended, of the session or, where
        the disk has no room for so many, of the round.

        ext4 looks at each inode that was freed in the last minute before it takes another one
        (recently_deleted, fs/ext4/ialloc.c): the run behind a removal would pay for it, not its
        mover.
        """
        folder.rename(self.kept / folder.name)

    def remove_trees(self) -> None:
        """Removes the round's trees; the next round's first one then waits out that minute."""
        if self.keeps_all_trees:
            return
        for folder in self.kept.iterdir():
            shutil.rmtree(folder, ignore_errors=True)
        self._commit(self.root)
        self.trees_removed_at = time.monotonic()

    def _commit(self, folder) -> None:
        """Lets the file system write down what was removed; files of others are not waited for."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def await_inodes(self) -> None:
        if self.trees_removed_at is None or self.tree_files < TREE_FILES_FELT:
            return
        left = FREED_INODE_S - (time.monotonic() - self.trees_removed_at)
        if left > 0:
            time.sleep(left)

    def server_folder(self, name: str, owner=None) -> Path:
        self.servers += 1  # A mover has a server in each network.
        folder = self.root / "servers" / f"{name}-{self.servers}"
        folder.mkdir(parents=True)
        if owner:
            user = pwd.getpwnam(owner)
            os.chown(folder, user.pw_uid, user.pw_gid)
        return folder


def sha256_of(path: Path) -> str:
    digest, buffer = hashlib.sha256(), bytearray(BLOCK_BYTES)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as file:
        while length := file.readinto(buffer):
            digest.update(view[:length])
    return digest.hexdigest()


def sha256_of_zeros(size_bytes: int) -> str:
    digest, block = hashlib.sha256(), bytes(BLOCK_BYTES)
    for _ in range(size_bytes // BLOCK_BYTES):
        digest.update(block)
    digest.update(block[: size_bytes % BLOCK_BYTES])
    return digest.hexdigest()


def roomiest_parent() -> Path:
    """Of the usual writable places on a disk, the one with the most free bytes."""
    best, best_free = None, -1
    for name in (*CANDIDATES, str(Path.home()), os.getcwd()):
        if not os.path.isdir(name) or not os.access(name, os.W_OK | os.X_OK):
            continue
        if mount_of(name)["type"] in MEMORY_FILE_SYSTEMS:
            continue
        free = shutil.disk_usage(name).free
        if free > best_free:  # Of places on one file system the first is taken.
            best, best_free = Path(name), free
    if best is None:
        raise SystemExit("peers: found no writable directory on a disk. Choose one with --dir.")
    return best
