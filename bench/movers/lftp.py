"""lftp's `pget -n 4`: one file by four connections, from an nginx of its own.

It writes the four parts into one file, so it has no sink, and a tree is no case for it.
"""

from compare import packages
from movers.mover import Role, Row, Scenario, with_cold
from movers.nginx import NginxCurl


class Lftp(NginxCurl):
    name = "lftp"
    programs = {"lftp": "lftp", "nginx": "nginx"}

    def version(self) -> str:
        lftp, nginx = (packages.version(name, self.programs[name]) for name in self.programs)
        return f"lftp {lftp}, nginx {nginx}"

    def rows(self) -> list:
        def command(place):
            url = f"http://127.0.0.1:{self.server.port}/{place.source_served()}"
            script = f"set cmd:fail-exit yes; pget -n 4 {url} -o {place.target}; exit"
            return [packages.find("lftp"), "--norc", "-c", script]

        label = "lftp pget -n 4 from nginx"
        return with_cold([Row("lftp-disk", Scenario.DISK, Role.PEER, label, "nothing", command)])
