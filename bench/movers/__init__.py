"""The movers that are compared, one file each. A new one is added to `MOVERS`, in table order."""

from movers.bare import Bare
from movers.cp import Cp
from movers.gridftp import GridFtp
from movers.haul import Haul
from movers.iperf3 import Iperf3
from movers.nginx import NginxCurl
from movers.rclone import RcloneHttp, RcloneSftp
from movers.rsync import Rsync
from movers.tar import Tar
from movers.xrootd import XRootD

MOVERS = (Bare, Haul, NginxCurl, GridFtp, XRootD, Rsync, RcloneHttp, RcloneSftp, Tar, Iperf3, Cp)
