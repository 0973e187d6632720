//! Structs of a library that will get more fields, filled in as if they were one's own.

/// The base with these fields set: `filled!(Report { ok: true, ..Report::default() })`. Outside of
/// its crate a `#[non_exhaustive]` struct has no such expression.
#[macro_export]
macro_rules! filled {
    ($type:path { $($field:ident $(: $value:expr)?,)* ..$base:expr }) => {{
        let mut filled: $type = $base;
        $(filled.$field = $crate::filled!(@value $field $($value)?);)*
        filled
    }};
    (@value $field:ident $value:expr) => { $value };
    (@value $field:ident) => { $field };
}
