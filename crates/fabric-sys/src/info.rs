//! Offers of a provider: entries of fi_getinfo(3), by which everything else is opened.

use core::{
    ffi::{CStr, c_char},
    ptr::{self, NonNull},
};
use std::ffi::CString;

use crate::{
    bindings::{self, fi_info},
    error::Error,
    library::library,
};

/// Version of the interface that is asked for: the oldest library that is built against.
const API_VERSION: u32 = (1 << 16) | 17;
/// Ways to register memory that are answered: local buffers are registered too, remote ones are
/// named by their address and a key that the provider chooses, where it wants that.
const MR_MODE: u32 = bindings::FI_MR_LOCAL
    | bindings::FI_MR_VIRT_ADDR
    | bindings::FI_MR_ALLOCATED
    | bindings::FI_MR_PROV_KEY;

/// Kind of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointKind {
    /// Connected pairs (FI_EP_MSG).
    Connected,
    /// Reliable datagrams to any peer (FI_EP_RDM), where a provider has nothing else.
    ReliableDatagrams,
}

/// One way of one provider, with its limits.
#[derive(Debug)]
pub struct Info {
    raw: NonNull<fi_info>,
    kind: EndpointKind,
}

// SAFETY: the value alone owns the structure, which no call changes behind it.
unsafe impl Send for Info {}
// SAFETY: a shared reference only reads it; libfabric's calls copy what they need of it.
unsafe impl Sync for Info {}

impl Info {
    /// Asks a provider for endpoints of this kind that send, receive, read and write remotely, with
    /// the local address `node`, where it is given.
    ///
    /// # Errors
    /// ENODATA where the provider has none, or is not in this library.
    pub fn find(provider: &str, kind: EndpointKind, node: Option<&str>) -> Result<Self, Error> {
        let no_text = |_| Error { call: "fi_getinfo", code: libc::EINVAL };
        let node = node.map(CString::new).transpose().map_err(no_text)?;
        let provider = CString::new(provider).map_err(no_text)?;
        let hints = Self::hints(&provider, kind)?;
        let (flags, node) = match &node {
            Some(node) => (bindings::FI_SOURCE, node.as_ptr()),
            None => (0, ptr::null()),
        };
        let mut found = ptr::null_mut();
        // SAFETY: the texts and the hints live across the call, which writes a list or nothing.
        let result = unsafe {
            (library()?.getinfo)(
                API_VERSION,
                node,
                ptr::null(),
                flags,
                hints.raw.as_ptr(),
                &raw mut found,
            )
        };
        Error::check("fi_getinfo", result as isize)?;
        // SAFETY: the list that was just made has a first entry.
        let first = unsafe { Self::copy_of(found, kind) };
        // SAFETY: nobody else has the list.
        unsafe { (library()?.freeinfo)(found) };
        first
    }

    fn hints(provider: &CStr, kind: EndpointKind) -> Result<Self, Error> {
        // SAFETY: null makes an empty structure with all parts that are written below.
        let hints = unsafe { Self::copy_of(ptr::null(), kind) }?;
        // SAFETY: the structure is ours alone; fi_dupinfo(3) made it.
        let info = unsafe { &mut *hints.raw.as_ptr() };
        info.caps = u64::from(bindings::FI_MSG | bindings::FI_RMA);
        info.mode = bindings::FI_CONTEXT | bindings::FI_CONTEXT2;
        // SAFETY: fi_dupinfo(3) of null allocates this part too.
        let endpoint = unsafe { &mut *info.ep_attr };
        endpoint.type_ = match kind {
            EndpointKind::Connected => bindings::fi_ep_type_FI_EP_MSG,
            EndpointKind::ReliableDatagrams => bindings::fi_ep_type_FI_EP_RDM,
        };
        // SAFETY: as for the endpoint's part.
        let domain = unsafe { &mut *info.domain_attr };
        domain.mr_mode = MR_MODE.cast_signed();
        domain.threading = bindings::fi_threading_FI_THREAD_SAFE;
        // SAFETY: as for the endpoint's part.
        let fabric = unsafe { &mut *info.fabric_attr };
        // SAFETY: the text ends with a zero; fi_freeinfo(3) frees the copy.
        fabric.prov_name = unsafe { libc::strdup(provider.as_ptr()) };
        Ok(hints)
    }

    /// Copies an entry, or makes an empty one of null.
    ///
    /// # Safety
    /// `entry` is null or points to a structure of libfabric.
    unsafe fn copy_of(entry: *const fi_info, kind: EndpointKind) -> Result<Self, Error> {
        // SAFETY: as the caller promises.
        let copy = unsafe { (library()?.dupinfo)(entry) };
        let raw = NonNull::new(copy).ok_or(Error { call: "fi_dupinfo", code: libc::ENOMEM })?;
        Ok(Self { raw, kind })
    }

    /// Owns an entry that libfabric gave away.
    ///
    /// # Safety
    /// `entry` is a structure of libfabric that nobody else frees.
    pub(crate) unsafe fn owned(entry: *mut fi_info, kind: EndpointKind) -> Option<Self> {
        NonNull::new(entry).map(|raw| Self { raw, kind })
    }

    /// Copies this entry for an endpoint that connects to `address`: provider verbs resolves it as
    /// the endpoint is opened, and not as it connects (libfabric 1.17).
    pub(crate) fn towards(&self, address: &[u8]) -> Result<Self, Error> {
        // SAFETY: the entry is whole.
        let copy = unsafe { Self::copy_of(self.raw.as_ptr(), self.kind) }?;
        // SAFETY: any length is allowed; fi_freeinfo(3) frees what this allocates.
        let room = unsafe { libc::malloc(address.len().max(1)) };
        if room.is_null() {
            return Err(Error { call: "malloc", code: libc::ENOMEM });
        }
        // SAFETY: the room is as long as the address, and new.
        unsafe { ptr::copy_nonoverlapping(address.as_ptr(), room.cast(), address.len()) };
        // SAFETY: the structure is ours alone.
        let info = unsafe { &mut *copy.raw.as_ptr() };
        // SAFETY: what stands there is null or was allocated by libfabric with malloc(3).
        unsafe { libc::free(info.dest_addr) };
        (info.dest_addr, info.dest_addrlen) = (room, address.len());
        Ok(copy)
    }

    pub(crate) fn raw(&self) -> *mut fi_info {
        self.raw.as_ptr()
    }

    fn entry(&self) -> &fi_info {
        // SAFETY: the structure is owned by `self` and changed by nobody.
        unsafe { self.raw.as_ref() }
    }

    #[must_use]
    pub fn kind(&self) -> EndpointKind {
        self.kind
    }

    /// Format of the provider's addresses, a number of fi_getinfo(3).
    #[must_use]
    pub fn address_format(&self) -> u32 {
        self.entry().addr_format
    }

    pub(crate) fn fabric_attributes(&self) -> *mut bindings::fi_fabric_attr {
        self.entry().fabric_attr
    }

    /// Name of the provider, with those that are layered over it.
    #[must_use]
    pub fn provider(&self) -> String {
        // SAFETY: every entry has this part.
        text(unsafe { &*self.entry().fabric_attr }.prov_name)
    }

    /// Name of the domain: of a card's port, for instance.
    #[must_use]
    pub fn domain(&self) -> String {
        // SAFETY: every entry has this part.
        text(unsafe { &*self.entry().domain_attr }.name)
    }

    /// Whether remote memory is named by its address, and not from 0 on.
    pub(crate) fn names_by_address(&self) -> bool {
        // SAFETY: every entry has this part.
        let mode = unsafe { &*self.entry().domain_attr }.mr_mode.cast_unsigned();
        mode & (bindings::FI_MR_VIRT_ADDR | 1) != 0
    }

    /// The longest message, in bytes.
    #[must_use]
    pub fn message_bytes_max(&self) -> usize {
        // SAFETY: every entry has this part.
        unsafe { &*self.entry().ep_attr }.max_msg_size
    }

    /// Length up to which a message can be sent without a completion.
    #[must_use]
    pub fn inject_bytes_max(&self) -> usize {
        // SAFETY: every entry has this part.
        unsafe { &*self.entry().tx_attr }.inject_size
    }

    /// Operations that may be under way: sends, reads and writes; receives.
    #[must_use]
    pub fn queue_lengths(&self) -> (usize, usize) {
        // SAFETY: every entry has this part.
        let sends = unsafe { &*self.entry().tx_attr }.size;
        // SAFETY: every entry has this part.
        let receives = unsafe { &*self.entry().rx_attr }.size;
        (sends, receives)
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        if let Ok(library) = library() {
            // SAFETY: the structure is owned by `self`, which goes.
            unsafe { (library.freeinfo)(self.raw.as_ptr()) };
        }
    }
}

fn text(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: texts of an entry end with a zero and live as long as it.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}
