//! Facts about the host that `haul` runs on: kernel, memory, processors, network, limits.
//!
//! [`Host::read`] reads /proc and /sys below a root that tests replace by a stored tree. What is
//! missing or unreadable never fails: the fact then has the value that promises the least. Only
//! the limits and the page size are always those of the running process.

use std::{
    fs,
    path::{Path, PathBuf},
};

pub mod block_device;
mod cgroup;
pub mod checks;
pub mod control_group;
mod cpu;
pub mod cpu_quota;
mod credentials;
mod disk_use;
mod disks;
pub mod file_system;
mod kernel;
mod limits;
mod memory;
mod network;
mod numa;
pub mod rdma;
pub mod tune;

pub use block_device::{BlockDevice, Storage};
pub use disk_use::DiskUse;
pub use file_system::{FileSystem, FsKind, rotational};
pub use numa::{Node, interface_node};

/// The name that this machine gives itself; `None` where nobody gave it a name.
#[must_use]
pub fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // Linux says so of a machine without one.
    Some(name).filter(|name| !name.is_empty() && name != "(none)")
}

/// The number of this start of the kernel: a new one after each boot. `None`: not known.
#[must_use]
pub fn boot_id() -> Option<[u8; 16]> {
    kernel::boot_id(Path::new("/"))
}

/// Facts about the host, found out once at start; engines and the chooser read it, never the system
/// directly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Major and minor number of the running kernel.
    pub kernel: (u32, u32),
    pub page_bytes: u64,
    /// Processors this process may use: its affinity, lessened by a processor quota of its cgroup.
    pub cores: u32,
    /// The numbers of the processors in this process's affinity; empty if they could not be read.
    pub cpus: Vec<u32>,
    /// The NUMA nodes that have processors.
    pub nodes: Vec<Node>,
    /// Memory of the host, or of this process's cgroup where that has less.
    pub memory_bytes: u64,
    pub memory_available_bytes: u64,
    /// Unwritten bytes beyond which writers wait for the disk (vm.dirty_ratio, vm.dirty_bytes).
    pub dirty_limit_bytes: u64,
    /// Soft limit of locked memory (RLIMIT_MEMLOCK); `u64::MAX` is no limit.
    pub memlock_limit_bytes: u64,
    /// Soft limit of open files (RLIMIT_NOFILE); `u64::MAX` is no limit.
    pub open_files_max: u64,
    /// Whether /proc/sys/kernel/io_uring_disabled forbids io_uring to this process.
    pub io_uring_disabled: bool,
    /// Whether this process has CAP_NET_ADMIN in effect, so it may choose any congestion control.
    pub may_administer_network: bool,
    /// Congestion controls that a process without CAP_NET_ADMIN may choose.
    pub congestion_allowed: Vec<String>,
    /// All congestion controls that the kernel offers.
    pub congestion_available: Vec<String>,
    /// Congestion control that connections begin with (net.ipv4.tcp_congestion_control); empty if
    /// it could not be read.
    pub congestion_default: String,
    /// Size up to which a socket's receive buffer may grow by itself (net.ipv4.tcp_rmem); 0: not
    /// known.
    pub receive_buffer_bytes_max: u64,
    /// Largest send buffer of a socket (net.ipv4.tcp_wmem).
    pub send_buffer_bytes_max: u64,
    /// The drivers of the network cards, each once, in order.
    pub network_drivers: Vec<String>,
}

impl Host {
    /// Reads the facts below `root` (`/` but in tests, which store such trees).
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let memory = memory::read(root);
        let congestion = network::read(root);
        Self {
            kernel: kernel::version(root),
            page_bytes: limits::page_bytes(),
            cores: cpu::cores(root),
            cpus: cpu::allowed(root),
            nodes: numa::nodes(root),
            memory_bytes: memory.total_bytes,
            memory_available_bytes: memory.available_bytes,
            dirty_limit_bytes: memory.dirty_limit_bytes,
            memlock_limit_bytes: limits::memlock_bytes(),
            open_files_max: limits::open_files_max(),
            io_uring_disabled: kernel::io_uring_disabled(root),
            may_administer_network: credentials::has(root, credentials::CAP_NET_ADMIN),
            congestion_allowed: congestion.allowed,
            congestion_available: congestion.available,
            congestion_default: congestion.default,
            receive_buffer_bytes_max: network::buffer_bytes_max(root, "tcp_rmem"),
            send_buffer_bytes_max: network::buffer_bytes_max(root, "tcp_wmem"),
            network_drivers: network::drivers(root),
        }
    }
}

/// The place below `root` of `path`, which may begin with `/`.
fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// The file's text, or `None` if it cannot be read.
fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The number in a file that holds one; `None` also for words such as `max`.
fn number(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

/// The text behind `key` on the first line of `text` that begins with it.
fn value_after<'text>(text: &'text str, key: &str) -> Option<&'text str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}
