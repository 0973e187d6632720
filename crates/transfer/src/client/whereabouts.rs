//! Places of files in the report: where they came from, and where they are now.

use crate::{
    events::{Event, Report},
    name::Name,
    options::{PullRequest, PushRequest, SourceSpec, TargetSpec},
    storage::root::split_last,
    url::HaulUrl,
};
use std::os::unix::ffi::OsStrExt;

/// Meaning of the target's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetMeans {
    /// The path is the new name of the one source.
    Name,
    Directory,
}

impl TargetMeans {
    #[must_use]
    pub fn name_if(is_name: bool) -> Self {
        if is_name { Self::Name } else { Self::Directory }
    }
}

/// Returns what `run` returns, and the name that the one source got, where `--on-conflict
/// keep-both` stored it under another.
pub fn noting<R>(
    on_event: &mut dyn FnMut(Event),
    run: impl FnOnce(&mut dyn FnMut(Event)) -> R,
) -> (R, Option<Name>) {
    let mut stored_as = None;
    let result = run(&mut |event| {
        if let Event::File(ended) = &event
            && !ended.path.0.contains(&b'/')
        {
            stored_as.clone_from(&ended.stored_as);
        }
        on_event(event);
    });
    (result, stored_as)
}

/// Puts the name that the one source got into the report.
#[must_use]
pub fn stored_as(report: Report, names: &[Option<Vec<u8>>], stored_as: Option<&Name>) -> Report {
    let (Some(stored_as), [Some(_)]) = (stored_as, names) else { return report };
    let name = split_last(&stored_as.0).1;
    let directory = report.to.0.len() - split_last(&report.to.0).1.len();
    Report { to: Name([&report.to.0[..directory], name].concat()), ..report }
}

/// Names the places of a push in its report. A server does not tell which directory it serves, so
/// its side is named by the URL from which the file can be pulled.
#[must_use]
pub fn of_push(
    report: Report,
    request: &PushRequest,
    names: &[Option<Vec<u8>>],
    means: TargetMeans,
) -> Report {
    let sources: Vec<Vec<u8>> = request.sources.iter().map(source_text).collect();
    let url = &request.url;
    let to = match &url.path[..] {
        b"null:" => format!("{} (thrown away)", url_of(url, b"null:")).into_bytes(),
        path => url_of(url, &target_path(path, names, means)).into_bytes(),
    };
    let proxy = proxy_of(url);
    Report { from: Name(together(&sources)), to: Name(to), proxy, ..report }
}

/// Names the places of a pull in its report.
#[must_use]
pub fn of_pull(
    report: Report,
    request: &PullRequest,
    names: &[Option<Vec<u8>>],
    means: TargetMeans,
) -> Report {
    let urls = request.urls.iter().map(|url| url_of(url, &url.path).into_bytes());
    let to = match &request.target {
        TargetSpec::Null => b"null: (thrown away)".to_vec(),
        TargetSpec::Path(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            target_path(path.as_os_str().as_bytes(), names, means)
        }
    };
    let from = Name(together(&urls.collect::<Vec<_>>()));
    let proxy = request.urls.first().map(proxy_of).unwrap_or_default();
    Report { from, to: Name(to), proxy, ..report }
}

fn proxy_of(url: &HaulUrl) -> String {
    url.proxy.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// Text of a source, as messages have it.
#[must_use]
pub fn source_text(source: &SourceSpec) -> Vec<u8> {
    match source {
        SourceSpec::Path(path) => path.as_bytes().to_vec(),
        SourceSpec::Zero(bytes) => format!("zero:{bytes}").into_bytes(),
        SourceSpec::Beginning(part) => part.path.as_os_str().as_bytes().to_vec(),
        SourceSpec::Beneath(place) => place.text(),
    }
}

/// The first of several names, and how many more there are.
fn together(all: &[Vec<u8>]) -> Vec<u8> {
    let first = all.first().cloned().unwrap_or_default();
    match all.len() {
        0 | 1 => first,
        count => [first, format!(" and {} more", count - 1).into_bytes()].concat(),
    }
}

/// Path of a single named source at the target; of several, and of contents, the directory.
fn target_path(path: &[u8], names: &[Option<Vec<u8>>], means: TargetMeans) -> Vec<u8> {
    if means == TargetMeans::Name {
        return path.to_vec();
    }
    let directory = match path {
        b"" | b"." => Vec::new(),
        path if path.ends_with(b"/") => path.to_vec(),
        path => [path, b"/"].concat(),
    };
    match names {
        [Some(name)] => [directory, name.clone()].concat(),
        _ => directory,
    }
}

fn url_of(url: &HaulUrl, path: &[u8]) -> String {
    HaulUrl { token: None, path: path.to_vec(), ..url.clone() }.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::TransferOptions;

    fn pushed(sources: &[&str], url: &str, means: TargetMeans) -> (String, String) {
        let request = PushRequest {
            sources: sources.iter().map(|path| SourceSpec::Path(path.into())).collect(),
            url: url.parse().unwrap(),
            options: TransferOptions::default(),
        };
        let names: Vec<_> = request.sources.iter().map(crate::target_names::source_name).collect();
        let report = of_push(Report::default(), &request, &names, means);
        (report.from.to_string(), report.to.to_string())
    }

    #[test]
    fn a_report_says_where_the_file_is_now() {
        let (directory, name) = (TargetMeans::Directory, TargetMeans::Name);
        let told = |sources: &[&str], url, means| {
            let (from, to) = pushed(sources, url, means);
            format!("{from} -> {to}")
        };
        assert_eq!(
            told(&["/x/scan.vdif"], "haul://dtn1/", directory),
            "/x/scan.vdif -> haul://dtn1:7117/scan.vdif"
        );
        assert_eq!(told(&["a"], "haul://dtn1/b", name), "a -> haul://dtn1:7117/b");
        assert_eq!(told(&["a"], "haul://dtn1/run", directory), "a -> haul://dtn1:7117/run/a");
        assert_eq!(
            told(&["a", "b", "c"], "haul://dtn1/run/", directory),
            "a and 2 more -> haul://dtn1:7117/run/"
        );
        assert_eq!(told(&["run7/"], "haul://dtn1/x/", directory), "run7/ -> haul://dtn1:7117/x/");
        assert_eq!(
            told(&["a"], "haul://dtn1/null:", directory),
            "a -> haul://dtn1:7117/null: (thrown away)"
        );
    }

    #[test]
    fn a_pulled_file_is_named_from_the_root_of_this_host() {
        let request = |target: TargetSpec| PullRequest {
            urls: vec!["haul://dtn1/run7/scan".parse().unwrap()],
            target,
            options: TransferOptions::default(),
        };
        let names = [Some(b"scan".to_vec())];
        let to = |target, means| {
            of_pull(Report::default(), &request(target), &names, means).to.to_string()
        };
        let path = |path: &str| TargetSpec::Path(path.into());
        assert_eq!(to(path("/scratch"), TargetMeans::Directory), "/scratch/scan");
        assert_eq!(to(path("/scratch/new"), TargetMeans::Name), "/scratch/new");
        assert_eq!(to(TargetSpec::Null, TargetMeans::Name), "null: (thrown away)");
    }
}
