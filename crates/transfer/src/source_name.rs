//! Name of a source at the target: its own, or none where its contents come without it.
//!
//! Decided here for both sides and both directions, by the path's text alone: `x` is called x;
//! `x/`, `x/.`, `.`, `..`, `x/..` and `/` are the contents of that directory.
//!
//! A single file may take the target's path as its new name. A directory never does: it would be
//! there at the next run of the same command, which would go below it.

/// Name that a source brings to the target; `None` where its contents come without it.
#[must_use]
pub fn name_of_source(path: &[u8]) -> Option<&[u8]> {
    match path.rsplit(|&byte| byte == b'/').next() {
        None | Some(b"" | b"." | b"..") => None,
        name => name,
    }
}

/// Whether sources of these names go into the target as a directory, whatever is there and they
/// are: one source with a name of its own may be a single file that takes the target's path.
#[must_use]
pub fn go_into_directory<Name>(names: &[Option<Name>]) -> bool {
    !matches!(names, [Some(_)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_directorys_contents_has_no_name() {
        for contents in ["", "/", ".", "./", "./.", "..", "../", "x/", "x//", "x/.", "x/./", "x/.."]
        {
            assert_eq!(name_of_source(contents.as_bytes()), None, "{contents}");
        }
        for (path, name) in
            [("x", "x"), ("./x", "x"), ("../x", "x"), ("/a/.x", ".x"), ("...", "...")]
        {
            assert_eq!(name_of_source(path.as_bytes()), Some(name.as_bytes()), "{path}");
        }
    }

    #[test]
    fn contents_never_take_the_target_as_their_new_name() {
        assert!(!go_into_directory(&[name_of_source(b"x")]));
        assert!(go_into_directory(&[name_of_source(b".")]));
        assert!(go_into_directory(&[name_of_source(b"x"), name_of_source(b"y")]));
        assert!(go_into_directory::<&[u8]>(&[]));
    }
}
