"""`cp` and `sync` of the file or the tree: what this disk gives a local copy."""

from compare import packages
from compare.host import mount_of
from movers.mover import Mover, Role, Row, Scenario, with_cold

SHARING_FILE_SYSTEMS = {"btrfs", "xfs", "bcachefs", "zfs"}


class Cp(Mover):
    name = "cp"
    programs = {"cp": "coreutils"}
    in_every_network = False

    def rows(self) -> list:
        def command(place):
            # Where blocks can be shared, cp would copy nothing.
            shares = mount_of(place.source)["type"] in SHARING_FILE_SYSTEMS
            options = ["--reflink=never"] if shares else []
            options += ["--recursive"] if place.source.is_dir() else []
            return [packages.find("cp"), *options, str(place.source), str(place.target)]

        return with_cold(
            [
                Row("cp-disk", Scenario.DISK, Role.LOCAL, "cp && sync", "nothing", command),
                Row("cp-tree", Scenario.TREE, Role.LOCAL, "cp -r && sync", "nothing", command),
            ]
        )
