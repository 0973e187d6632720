//! A domain: one provider opened, in which memory is registered and endpoints live.

use core::ptr;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::{
    bindings::{self, fid_domain, fid_fabric},
    error::Error,
    info::Info,
    library::library,
    object::Object,
};

/// An opened provider. What is opened in it keeps it open.
#[derive(Debug)]
pub struct Domain {
    // In this order they are closed.
    domain: Object<fid_domain>,
    fabric: Object<fid_fabric>,
    info: Info,
    /// The next key of registered memory, for a provider that does not choose keys itself.
    next_key: AtomicU64,
}

impl Domain {
    /// Opens a provider as `info` describes it.
    ///
    /// # Errors
    /// What fi_fabric(3) and fi_domain(3) say.
    pub fn open(info: Info) -> Result<Arc<Self>, Error> {
        let attributes = info.fabric_attributes();
        let open = library()?.fabric;
        let fabric = Object::made("fi_fabric", |made| {
            // SAFETY: the attributes are those of a whole entry, which outlives the call.
            unsafe { open(attributes, made, ptr::null_mut()) }
        })?;
        let domain = Object::made("fi_domain", |made| {
            // SAFETY: the fabric is open, and the entry is whole.
            unsafe { bindings::fi_domain(fabric.raw(), info.raw(), made, ptr::null_mut()) }
        })?;
        Ok(Arc::new(Self { domain, fabric, info, next_key: AtomicU64::new(1) }))
    }

    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    pub(crate) fn raw(&self) -> *mut fid_domain {
        self.domain.raw()
    }

    pub(crate) fn fabric(&self) -> *mut fid_fabric {
        self.fabric.raw()
    }

    pub(crate) fn next_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }
}
