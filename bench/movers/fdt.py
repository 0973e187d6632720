"""FDT by its own server, four streams: Java, `fdt.jar`.

After https://github.com/fast-data-transfer/fdt, docs/doc-examples.md and "FDT command options".
"""

from compare import packages, servers
from movers.given import Given
from movers.mover import Role, Row, Scenario, with_cold


class Fdt(Given):
    name = "fdt"
    option, metavar, help = "fdt", "JAR", "fdt.jar of FDT, which needs java"
    version_words = ("-V",)
    programs = {"java": "default-jre-headless"}

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)

        def command(port):
            return [*self._java(), "-p", str(port), "-f", "127.0.0.1"]

        self.server = servers.launch_on_free_port(command, env, folder)

    def rows(self) -> list:
        return with_cold([self._row("push", []), self._row("pull", ["-pull"])])

    def _row(self, direction, words) -> Row:
        def command(place):
            server = ["-p", str(self.server.port), "-c", "127.0.0.1", "-P", "4"]
            ends = ["-d", str(place.target.parent), str(place.source)]
            return [*self._java(), *server, *words, *ends]

        label = f"FDT -P 4 {'to' if direction == 'push' else 'from'} an FDT server"
        return Row(
            f"fdt-{direction}-disk",
            Scenario.DISK,
            Role.PEER,
            label,
            "nothing",
            command,
            note="Java's start, and the seconds that FDT waits at its end, are in its time",
        )

    def program(self) -> list:
        return self._java()

    def _java(self) -> list:
        # Otherwise it would look for a newer version of itself on the network.
        return [packages.find("java"), "-jar", self.given(), "-noupdates"]
