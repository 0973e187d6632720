"""nginx (sendfile on, aio off) serves, curl fetches. No checksum of the content."""

from compare import packages, servers
from movers.mover import Mover, Role, Row, Scenario, with_cold

CONFIGURATION = """\
daemon off;
master_process on;
worker_processes auto;
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    sendfile on;
    aio off;
    tcp_nopush on;
    default_type application/octet-stream;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        root {root};
    }}
}}
"""


class NginxCurl(Mover):
    name = "nginx"
    programs = {"nginx": "nginx", "curl": "curl"}

    def version(self) -> str:
        nginx, curl = (packages.version(name, self.programs[name]) for name in self.programs)
        return f"nginx {nginx}, curl {curl}"

    def start(self, workspace, env) -> None:
        folder = workspace.server_folder(self.name)
        user = "user root;" if self.options.is_root else ""
        configuration = folder / "nginx.conf"

        def command(port):
            values = {"folder": folder, "port": port, "user": user, "root": workspace.root}
            configuration.write_text(CONFIGURATION.format(**values))
            error_log = str(folder / "error.log")
            program = packages.find("nginx")
            return [program, "-p", str(folder), "-c", str(configuration), "-e", error_log]

        self.server = servers.launch_on_free_port(command, env, folder)

    def rows(self) -> list:
        return with_cold(
            [
                self._row("curl-discard", Scenario.DISCARD),
                self._row("curl-disk", Scenario.DISK),
            ]
        )

    def _row(self, name, scenario) -> Row:
        def command(place):
            output = str(place.target or "/dev/null")
            url = f"http://127.0.0.1:{self.server.port}/{place.source_served()}"
            return [packages.find("curl"), "--silent", "--show-error", "--fail", "-o", output, url]

        return Row(name, scenario, Role.PEER, "curl from nginx", "nothing", command)
