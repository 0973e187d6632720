"""WDT: a receiver that prints its URL, a sender that reads it, eight connections.

After https://github.com/facebook/wdt: the wiki page "Getting Started with the WDT command line",
and wdtCmdLine.cpp for `-manifest`. A receiver serves one transfer, so both ends are one row's
client.
"""

import shlex

from movers.given import Given
from movers.mover import Role, Row, Scenario, with_cold


class Wdt(Given):
    name = "wdt"
    option, help = "wdt", "the program wdt"

    def start(self, workspace, env) -> None:
        self.manifest = workspace.server_folder(self.name) / "manifest"

    def rows(self) -> list:
        plain = ["-encryption_type", "none"]
        return with_cold(
            [
                self._row("wdt-push-disk", [], "AES-128-GCM"),
                self._row("wdt-push-plain-disk", plain, "CRC32C of each block"),
            ]
        )

    def _row(self, name, words, checks) -> Row:
        def command(place):
            # The source's directory holds the tree too: a manifest names the file alone.
            self.manifest.write_text(place.source.name + "\n")
            program = self.given()
            where = ["-hostname", "127.0.0.1", "-start_port", "0"]
            receive = [program, *where, "-directory", str(place.target.parent), *words]
            ends = ["-directory", str(place.source.parent), "-manifest", str(self.manifest)]
            send = [program, *ends, *words, "-"]
            return ["/bin/sh", "-c", f"{shlex.join(receive)} | {shlex.join(send)}"]

        label = " ".join(["wdt", *words])
        return Row(name, Scenario.DISK, Role.PEER, label, checks, command)
