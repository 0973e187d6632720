//! Ownership of libfabric's objects: each is closed once, when its owner goes.

use core::{ffi::c_int, ptr::NonNull};

use crate::{
    bindings::{self, fid},
    error::Error,
};

/// An object of libfabric that is closed when this is dropped.
#[derive(Debug)]
pub(crate) struct Object<T> {
    raw: NonNull<T>,
}

// SAFETY: domains are opened with FI_THREAD_SAFE, by which any thread may use any object.
unsafe impl<T> Send for Object<T> {}
// SAFETY: as for `Send`.
unsafe impl<T> Sync for Object<T> {}

impl<T> Object<T> {
    /// Owns what `make` wrote to its argument, which is what `call` does.
    pub(crate) fn made(
        call: &'static str,
        make: impl FnOnce(*mut *mut T) -> c_int,
    ) -> Result<Self, Error> {
        let mut raw = core::ptr::null_mut();
        let result = make(&raw mut raw);
        Error::check(call, result as isize)?;
        NonNull::new(raw).map(|raw| Self { raw }).ok_or(Error { call, code: libc::EIO })
    }

    pub(crate) fn raw(&self) -> *mut T {
        self.raw.as_ptr()
    }

    /// The part that all objects begin with (fabric.h: "must start with this structure").
    pub(crate) fn fid(&self) -> *mut fid {
        self.raw.as_ptr().cast()
    }

    /// Closes the object; an error leaves it as it is, for ever.
    pub(crate) fn close(self) -> Result<(), Error> {
        let fid = self.fid();
        core::mem::forget(self);
        // SAFETY: the object is open, and nobody else has it: it was owned by `self`.
        Error::check("fi_close", unsafe { bindings::fi_close(fid) } as isize).map(drop)
    }
}

impl<T> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: the object is open, and its owner goes.
        let _ = unsafe { bindings::fi_close(self.fid()) };
    }
}
