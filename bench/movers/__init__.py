"""The movers that are compared, one file each. A new one is added to `MOVERS`, in table order."""

from movers.bare import Bare
from movers.bbcp import Bbcp
from movers.beyond import Beyond
from movers.cp import Cp
from movers.etransfer import Etransfer
from movers.fdt import Fdt
from movers.gridftp import GridFtp
from movers.haul import Haul
from movers.iperf3 import Iperf3
from movers.lftp import Lftp
from movers.mscp import Mscp
from movers.nginx import NginxCurl
from movers.rclone import RcloneHttp, RcloneSftp
from movers.rsync import Rsync
from movers.scp import Scp
from movers.tar import Tar
from movers.wdt import Wdt
from movers.xrootd import XRootD

GIVEN = (Fdt, Bbcp, Etransfer, Mscp, Wdt)
PEERS = (NginxCurl, GridFtp, XRootD, Rsync, RcloneHttp, RcloneSftp, Lftp, Scp, Tar, *GIVEN)
MOVERS = (Bare, Haul, *PEERS, Iperf3, Cp, Beyond)
