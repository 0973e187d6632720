//! Registered memory: buffers of this process, and windows on a file's pages.

use core::{ffi::c_void, ops::Range, ptr};
use std::{io, os::fd::AsFd, sync::Arc};

use haul_sys::PageMemory;

use crate::{
    bindings::{self, fid_mr},
    domain::Domain,
    error::Error,
    object::Object,
};

/// Access of a peer to a buffer, by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing: the buffer sends, receives, and is where remote reads and writes begin.
    Local,
    /// The peer writes into it.
    RemoteWrite,
    /// The peer reads it.
    RemoteRead,
}

impl Reach {
    fn access(self) -> u32 {
        let local = bindings::FI_SEND | bindings::FI_RECV | bindings::FI_READ | bindings::FI_WRITE;
        match self {
            Self::Local => local,
            Self::RemoteWrite => local | bindings::FI_REMOTE_WRITE,
            Self::RemoteRead => local | bindings::FI_REMOTE_READ,
        }
    }
}

/// Registers memory with a domain.
///
/// # Safety
/// The range stays mapped until the registration is closed.
unsafe fn register(
    domain: &Domain,
    start: *const c_void,
    len_bytes: usize,
    access: u32,
) -> Result<Object<fid_mr>, Error> {
    Object::made("fi_mr_reg", |made| {
        // SAFETY: the domain is open; the range stays mapped, as the caller promises.
        unsafe {
            bindings::fi_mr_reg(
                domain.raw(),
                start,
                len_bytes,
                access.into(),
                0,
                domain.next_key(),
                0,
                made,
                ptr::null_mut(),
            )
        }
    })
}

/// Registered memory of this process, in whole pages.
#[derive(Debug)]
pub struct Buffer {
    // In this order they go: the registration before the memory, and both before the domain.
    region: Object<fid_mr>,
    memory: PageMemory,
    domain: Arc<Domain>,
}

impl Buffer {
    /// Maps and registers zeroed memory.
    ///
    /// # Errors
    /// ENOMEM without memory, or where RLIMIT_MEMLOCK leaves none to pin; else what fi_mr(3) says.
    pub fn new(domain: &Arc<Domain>, len_bytes: usize, reach: Reach) -> Result<Self, Error> {
        let no_memory = |_: io::Error| Error { call: "mmap", code: libc::ENOMEM };
        let mut memory = PageMemory::new(len_bytes).map_err(no_memory)?;
        let start = memory.bytes_mut().as_mut_ptr().cast_const().cast();
        // SAFETY: the memory is unmapped after the registration is closed, by the fields' order.
        let region = unsafe { register(domain, start, len_bytes, reach.access()) }?;
        Ok(Self { region, memory, domain: domain.clone() })
    }

    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.memory.len_bytes()
    }

    /// The buffer's name for a peer that reads or writes it.
    #[must_use]
    pub fn remote(&self) -> Remote {
        let is_by_address = self.domain.info().names_by_address();
        let address = if is_by_address { self.bytes().as_ptr() as u64 } else { 0 };
        // SAFETY: the registration is open.
        Remote { address, key: unsafe { bindings::fi_mr_key(self.region.raw()) } }
    }

    pub(crate) fn start(&mut self) -> *mut c_void {
        self.bytes_mut().as_mut_ptr().cast()
    }

    pub(crate) fn descriptor(&self) -> *mut c_void {
        descriptor(&self.region)
    }
}

/// The peer's memory, as its [`Buffer::remote`] names it, from some byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    pub address: u64,
    pub key: u64,
}

impl Remote {
    /// Names the memory from a later byte on.
    #[must_use]
    pub fn from(self, offset_bytes: u64) -> Self {
        Self { address: self.address + offset_bytes, ..self }
    }
}

/// A part of a file whose pages in the page cache are registered, for sending and remote writing.
///
/// No local write is asked for: since Linux 6.2 such a registration pins the file's own pages. A
/// card sends them as they are, also when the file was cut short since (seen over soft-RoCE, Linux
/// 6.12). Where a provider reads them by the processor and the file was cut short, it reads zeros,
/// and [`Window::has_lost_a_page`] says so.
#[derive(Debug)]
pub struct Window {
    // In this order they go.
    region: Object<fid_mr>,
    mapping: haul_sys::Window,
    _domain: Arc<Domain>,
}

// SAFETY: a shared reference only reads: the bytes, which others may change at any time, and an
// atomic flag.
unsafe impl Sync for Window {}

/// Reasons why a window cannot be had.
#[derive(Debug)]
pub enum NoWindow {
    /// The file cannot be mapped.
    Map(io::Error),
    /// The kernel or the card refuses the pages: EFAULT of a file that cannot be pinned or ends
    /// before the window does, ENOMEM beyond RLIMIT_MEMLOCK, EPERM where that is 0.
    Register(Error),
}

impl Window {
    /// Maps and registers a part of a file.
    ///
    /// # Errors
    /// The reason, by which the caller may take another way.
    pub fn new(
        domain: &Arc<Domain>,
        file: impl AsFd,
        offset_bytes: u64,
        len_bytes: usize,
    ) -> Result<Self, NoWindow> {
        let mapping =
            haul_sys::Window::open(file, offset_bytes, len_bytes).map_err(NoWindow::Map)?;
        let access = bindings::FI_SEND | bindings::FI_WRITE;
        // SAFETY: the mapping goes after the registration is closed, by the fields' order.
        let region = unsafe { register(domain, mapping.address_of_first(), len_bytes, access) };
        let region = region.map_err(NoWindow::Register)?;
        Ok(Self { region, mapping, _domain: domain.clone() })
    }

    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.mapping.len_bytes()
    }

    /// Shows a range of the window to `look`, for a digest.
    ///
    /// # Errors
    /// `UnexpectedEof` when a page was gone.
    ///
    /// # Panics
    /// If the range leaves the window.
    pub fn see(&self, range: Range<usize>, look: impl FnOnce(&[u8])) -> io::Result<()> {
        self.mapping.see(range, look)
    }

    /// Whether some page was gone when the processor read it.
    #[must_use]
    pub fn has_lost_a_page(&self) -> bool {
        self.mapping.has_lost_a_page()
    }

    pub(crate) fn start(&self) -> *const c_void {
        self.mapping.address_of_first()
    }

    pub(crate) fn descriptor(&self) -> *mut c_void {
        descriptor(&self.region)
    }
}

fn descriptor(region: &Object<fid_mr>) -> *mut c_void {
    // SAFETY: the registration is open.
    unsafe { bindings::fi_mr_desc(region.raw()) }
}
