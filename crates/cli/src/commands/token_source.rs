//! The source of a token: the URL, `--token-file`, or `HAUL_TOKEN`.

use crate::args::usage_problem;
use haul_transfer::{HaulUrl, Problem, TOKEN_VARIABLE, Token, TransferError};
use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Most bytes of a token file: blanks and line ends are allowed for.
const TOKEN_FILE_BYTES_MAX: u64 = 4096;

/// Gives the URLs, which are of one server, the token that they lack.
///
/// # Errors
/// If there is none or more than one; that it may pass, where the file cannot be read, as on a node
/// whose mount is missing.
pub fn complete(urls: &mut [HaulUrl], token_file: Option<&Path>) -> Result<(), TransferError> {
    let in_url = urls.iter().any(|url| url.token.is_some());
    let token = match token_file {
        Some(_) if in_url => {
            return Err(TransferError::start(usage_problem(
                "cannot take --token-file",
                "one token",
                "another in the URL",
                "leave out one of them: haul://HOST:PORT/path is a URL without a token",
            )));
        }
        Some(path) => from_file(path)?,
        None if in_url => return Ok(()),
        None => from_environment().map_err(TransferError::start)?,
    };
    for url in urls {
        url.token = Some(token.clone());
    }
    Ok(())
}

fn from_file(path: &Path) -> Result<Token, TransferError> {
    let what = format!("cannot take the token from {}", path.display());
    let hint = "the file holds the token alone, the letters and digits before the @ of the URL";
    let problem =
        |found: &str| usage_problem(&what, "a token of 53 letters and digits", found, hint);
    let read = || -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(TOKEN_FILE_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => TransferError::start(problem("something else")),
        _ => TransferError::Unavailable(Box::new(problem(&error.to_string()))),
    })?;
    text.parse::<Token>().map_err(|_| TransferError::start(problem("something else")))
}

fn from_environment() -> Result<Token, Problem> {
    let text = std::env::var(TOKEN_VARIABLE).unwrap_or_default();
    if text.trim().is_empty() {
        return Err(usage_problem(
            "the URL has no token",
            "one in the URL (haul://TOKEN@HOST/path), in --token-file or in HAUL_TOKEN",
            "none",
            "copy the whole URL that `haul serve` or `haul token new --host` printed",
        ));
    }
    text.parse::<Token>().map_err(|_| {
        usage_problem(
            "cannot take the token from HAUL_TOKEN",
            "a token of 53 letters and digits",
            "something else",
            "it is the part before the @ of the URL that `haul serve` printed",
        )
    })
}
