"""xrootd serves, xrdcp copies. By default it checks the CRC32C of every 4 KiB page on the way."""

from compare import packages, servers
from movers.mover import Mover, Role, Row, Scenario, with_cold

DROPPED_USER = "nobody"  # xrootd refuses to run as root.
CONFIGURATION = """\
all.adminpath {folder}
all.pidpath {folder}
all.export /
oss.localroot {root}
xrd.port {port}
xrd.network nodnr
"""
# XrdCl takes each of its settings from XRD_ and the setting's name; this is CpUsePgWrtRd.
NO_PAGE_CHECKS = {"XRD_CPUSEPGWRTRD": "0"}


class XRootD(Mover):
    name = "xrootd"
    programs = {"xrdcp": "xrootd-client", "xrootd": "xrootd-server"}

    def start(self, workspace, env) -> None:
        owner = DROPPED_USER if self.options.is_root else None
        folder = workspace.server_folder(self.name, owner)
        configuration = folder / "xrootd.cf"
        user = ["-R", DROPPED_USER] if self.options.is_root else []

        def command(port):
            values = {"folder": folder, "port": port, "root": workspace.root}
            configuration.write_text(CONFIGURATION.format(**values))
            names = ["-c", str(configuration), "-n", "peers", "-l", str(folder / "xrootd.log")]
            return [packages.find("xrootd"), *names, *user]

        self.server = servers.launch_on_free_port(command, env, folder)

    def rows(self) -> list:
        rows = []
        for scenario in (Scenario.DISCARD, Scenario.DISK):
            rows.append(self._row("pull", scenario, page_checks=True))
            rows.append(self._row("pull", scenario, page_checks=False))
        rows.append(self._row("pull", Scenario.TREE, page_checks=False))
        rows.append(self._row("push", Scenario.DISK, page_checks=True))
        rows.append(self._row("push", Scenario.DISK, page_checks=False))
        return with_cold(rows)

    def _row(self, direction, scenario, *, page_checks) -> Row:
        pull = direction == "pull"

        def command(place):
            remote = f"root://127.0.0.1:{self.server.port}//"
            ends = [f"{remote}{place.source_served()}", str(place.target or "/dev/null")]
            if not pull:
                target = f"{place.folder_served()}/{place.target.name}"
                ends = [str(place.source), f"{remote}{target}"]
            options = ["--force", "--silent"]
            if scenario is Scenario.TREE:  # It makes the directory `tree` itself.
                options += ["--recursive", "--parallel", "4"]
                ends[1] = str(place.target.parent)
            return [packages.find("xrdcp"), *options, *ends]

        checks = "CRC32C of each 4 KiB page" if page_checks else "nothing"
        label = f"xrdcp {'from' if pull else 'to'} xrootd"
        return Row(
            f"xrdcp-{direction}{'' if page_checks else '-unchecked'}-{scenario.value}",
            scenario,
            Role.PEER,
            label if page_checks else f"{label}, `XRD_CPUSEPGWRTRD=0`",
            checks,
            command,
            target_owner=DROPPED_USER if self.options.is_root and not pull else None,
            env={} if page_checks else NO_PAGE_CHECKS,
        )
