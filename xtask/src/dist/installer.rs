//! Tests of the installer, packaging/install.sh, which changes nothing where something is wrong.
//!
//! The program in these releases is a script of two lines.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Architecture, Release, archive};
use crate::project_root;

/// A release in a directory, and a prefix beside it; both go when this goes.
struct Place {
    directory: PathBuf,
    release: Release,
}

impl Place {
    fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("haul-xtask-installer-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let release = Release {
            version: "7.1.17".into(),
            architecture: Architecture::own().unwrap(),
            time_s: 0,
            out: directory.join("release"),
        };
        fs::create_dir_all(&release.out).unwrap();
        let place = Place { directory, release };
        place.add_release("7.1.17", "echo haul 7.1.17");
        place
    }

    /// Adds an archive whose program is a script.
    fn add_release(&self, version: &str, script: &str) {
        let release = Release {
            version: version.into(),
            architecture: self.release.architecture,
            time_s: 0,
            out: self.release.out.clone(),
        };
        let tree = self.directory.join(release.name());
        for (name, text) in [
            ("haul", format!("#!/bin/sh\n{script}\n").as_str()),
            ("man/haul.1", "page"),
            ("completions/_haul", "zsh"),
            ("completions/haul.bash", "bash"),
            ("completions/haul.fish", "fish"),
        ] {
            let path = tree.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(tree.join("haul"), mode).unwrap();
        archive::pack(&self.directory, &release, &tree).unwrap();
        archive::write_sums(&self.directory, &release).unwrap();
    }

    fn archive(&self) -> PathBuf {
        self.release.out.join(format!("{}.tar.gz", self.release.name()))
    }

    fn prefix(&self) -> PathBuf {
        self.directory.join("prefix")
    }

    fn install(&self, from: &str, more: &[&str]) -> Output {
        let mut command = Command::new("sh");
        command.arg(project_root().join("packaging/install.sh"));
        command.args(["--from", from, "--prefix"]).arg(self.prefix()).args(more);
        command.stdin(Stdio::null()).env("HOME", &self.directory).output().unwrap()
    }

    fn install_from_directory(&self) -> Output {
        self.install(self.release.out.to_str().unwrap(), &[])
    }

    /// Asserts that the installer failed, said `words`, and left no file behind.
    fn assert_refused(&self, output: &Output, words: &[&str]) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        for word in words {
            assert!(said.contains(word), "{word:?} is not in {said}");
        }
        assert_eq!(files_below(&self.prefix()), [""; 0]);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Names of all files below a directory.
fn files_below(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            names.extend(files_below(&path));
        } else {
            names.push(path.to_string_lossy().into_owned());
        }
    }
    names
}

/// Counts the running test as skipped, as haul-testkit does for tests of other crates.
fn skip(needs: &str) {
    let Some(log) = std::env::var_os("HAUL_SKIP_LOG") else { return };
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    let mut file = fs::OpenOptions::new().append(true).create(true).open(log).unwrap();
    writeln!(file, "skipped: needs {needs}, found none\txtask\t{test}").unwrap();
}

/// Serves the files of a directory over HTTP, for `count` requests.
fn serve(directory: PathBuf, count: usize) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            let line = String::from_utf8(request).unwrap();
            let name = line.split_whitespace().nth(1).unwrap().trim_start_matches('/').to_owned();
            let bytes = fs::read(directory.join(name)).unwrap();
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                bytes.len()
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&bytes).unwrap();
        }
    });
    (url, server)
}

#[test]
fn the_program_pages_and_completions_are_installed_from_a_directory() {
    let place = Place::new();
    let output = place.install_from_directory();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("haul 7.1.17 is installed: ") && said.contains("not in PATH"));
    let program = Command::new(place.prefix().join("bin/haul")).output().unwrap();
    assert_eq!(program.stdout, b"haul 7.1.17\n");
    for (name, text) in [
        ("share/man/man1/haul.1", "page"),
        ("share/bash-completion/completions/haul", "bash"),
        ("share/zsh/site-functions/_haul", "zsh"),
        ("share/fish/vendor_completions.d/haul.fish", "fish"),
    ] {
        assert_eq!(fs::read_to_string(place.prefix().join(name)).unwrap(), text);
    }
    assert_eq!(files_below(&place.prefix()).len(), 5, "a file of the installer's own is left");
}

#[test]
fn a_release_is_installed_over_http_and_from_a_file_url() {
    if !crate::child::is_installed("curl") && !crate::child::is_installed("wget") {
        return skip("curl or wget");
    }
    let place = Place::new();
    let (url, server) = serve(place.release.out.clone(), 2);
    let output = place.install(&url, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    server.join().unwrap();
    let url = format!("file://{}/", place.release.out.display());
    assert!(place.install(&url, &[]).status.success());
}

#[test]
fn a_flipped_bit_is_refused_with_both_digests() {
    let place = Place::new();
    let sums = fs::read_to_string(place.release.out.join("SHA256SUMS")).unwrap();
    let mut bytes = fs::read(place.archive()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(place.archive(), bytes).unwrap();
    let output = place.install_from_directory();
    place.assert_refused(&output, &["nothing installed", "expected SHA-256", &sums[..64], "found"]);
}

#[test]
fn half_an_archive_is_refused_with_its_length() {
    let place = Place::new();
    let bytes = fs::read(place.archive()).unwrap();
    let half = bytes.len() / 2;
    fs::write(place.archive(), &bytes[..half]).unwrap();
    let length = format!("{half} bytes");
    place.assert_refused(&place.install_from_directory(), &["nothing installed", &length]);
}

#[test]
fn a_release_without_digests_or_without_this_archive_is_refused() {
    let place = Place::new();
    let sums = place.release.out.join("SHA256SUMS");
    fs::write(&sums, "").unwrap();
    place.assert_refused(&place.install_from_directory(), &["has no haul-VERSION-"]);
    fs::remove_file(&sums).unwrap();
    place.assert_refused(&place.install_from_directory(), &["no archive could be checked"]);
}

#[test]
fn a_digest_known_from_elsewhere_counts_more_than_the_release_s_own() {
    let place = Place::new();
    let other = "0".repeat(64);
    let from = place.release.out.to_str().unwrap();
    place.assert_refused(&place.install(from, &["--sha256", &other]), &[&other]);
}

#[test]
fn a_prefix_that_cannot_be_written_is_named() {
    let place = Place::new();
    fs::write(place.prefix(), "a file is in the way").unwrap();
    let output = place.install_from_directory();
    place.assert_refused(&output, &["cannot write to", "--prefix"]);
}

#[test]
fn an_installer_that_is_ended_leaves_nothing() {
    let place = Place::new();
    let started = place.directory.join("started");
    // The new program is started before anything is in place; it ends the installer then.
    place.add_release("7.1.18", &format!("touch {}; kill -TERM $PPID", started.display()));
    let from = place.release.out.to_str().unwrap();
    let output = place.install(from, &["--version", "7.1.18"]);
    assert!(started.exists());
    place.assert_refused(&output, &[]);
}

#[test]
fn a_program_that_does_not_start_here_leaves_the_old_one() {
    let place = Place::new();
    assert!(place.install_from_directory().status.success());
    place.add_release("7.1.18", "echo no such loader >&2; exit 127");
    let from = place.release.out.to_str().unwrap();
    let output = place.install(from, &["--version", "7.1.18"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("does not start here") && said.contains("no such loader"), "{said}");
    let program = Command::new(place.prefix().join("bin/haul")).output().unwrap();
    assert_eq!(program.stdout, b"haul 7.1.17\n");
    assert_eq!(files_below(&place.prefix()).len(), 5);
}

#[test]
fn several_releases_need_a_choice_and_one_is_replaced_by_another() {
    let place = Place::new();
    place.add_release("7.1.18", "echo haul 7.1.18");
    place.assert_refused(&place.install_from_directory(), &["several releases", "7.1.18"]);
    let from = place.release.out.to_str().unwrap();
    for version in ["7.1.17", "7.1.18"] {
        let output = place.install(from, &["--version", version]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let program = Command::new(place.prefix().join("bin/haul")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&program.stdout), format!("haul {version}\n"));
    }
}

#[test]
fn half_of_the_installer_does_nothing() {
    let place = Place::new();
    let text = fs::read_to_string(project_root().join("packaging/install.sh")).unwrap();
    let last = text.find("\nmain \"$@\"").expect("the last line starts what is before it");
    for end in [text.len() / 2, text.len() * 3 / 4, last] {
        let part = place.directory.join("part.sh");
        fs::write(&part, &text[..end]).unwrap();
        let mut command = Command::new("sh");
        command.arg(part).args(["--from", place.release.out.to_str().unwrap(), "--prefix"]);
        command.arg(place.prefix()).output().unwrap();
        assert_eq!(files_below(&place.prefix()), [""; 0]);
    }
}

#[test]
fn the_scripts_are_in_order_for_shellcheck() {
    if !crate::child::is_installed("shellcheck") {
        return skip("shellcheck");
    }
    let mut command = Command::new("shellcheck");
    command.current_dir(project_root().join("packaging"));
    command.args(["--external-sources", "--source-path=SCRIPTDIR", "--shell=sh", "install.sh"]);
    for script in ["debian/postinst", "debian/prerm", "debian/postrm"] {
        command.arg(script);
    }
    for entry in fs::read_dir(project_root().join("packaging/trial")).unwrap() {
        command.arg(Path::new("trial").join(entry.unwrap().file_name()));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let examples = ["slurm/array.sh", "slurm/srun.sh", "hyperqueue/shard.sh", "parallel/run.sh"];
    let mut command = Command::new("shellcheck");
    let output = command.current_dir(project_root().join("examples")).args(examples).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
