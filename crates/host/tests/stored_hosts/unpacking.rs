//! Makes the tree of a stored host in a directory that is gone with it.

use std::{
    fs, io,
    os::unix::fs::{OpenOptionsExt, symlink},
    path::{Path, PathBuf},
};

use haul_host::tune::{Goal, Machine, machine::STORED_ANSWERS};

use super::notation::{Content, Entry, Fault, Leads, Mode, StoredHost};

pub struct UnpackedHost {
    directory: tempfile::TempDir,
    pub machine: Machine,
    pub goal: Goal,
}

impl UnpackedHost {
    /// Unpacks a host.
    ///
    /// # Panics
    /// With the file and the line that cannot be.
    pub fn of(host: &StoredHost) -> Self {
        Self::try_of(host).unwrap_or_else(|fault| panic!("{fault}"))
    }

    pub fn try_of(host: &StoredHost) -> Result<Self, Fault> {
        // A host is thousands of small files, so they lie in memory where that can be had.
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let directory = directory.expect("a directory for the host");
        for entry in &host.entries {
            make(directory.path(), entry).map_err(|words| Fault {
                file: format!("{}.host", host.name),
                line: entry.line,
                words: format!("{}: {words}", entry.name),
            })?;
        }
        let machine = Machine::below(directory.path());
        let goal = Goal::of(&machine, &host.wanted);
        Ok(Self { directory, machine, goal })
    }

    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    /// All files and links, in order, as paths below the root.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut directories = vec![self.root().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).expect("a directory that we made") {
                let entry = entry.expect("an entry that we made");
                if entry.file_type().expect("its type").is_dir() {
                    directories.push(entry.path());
                } else {
                    let path = entry.path();
                    files.push(path.strip_prefix(self.root()).expect("below it").to_owned());
                }
            }
        }
        files.sort_unstable();
        files
    }
}

fn make(root: &Path, entry: &Entry) -> Result<(), String> {
    let path = match &entry.content {
        Content::Answer(_) => root.join(STORED_ANSWERS).join(entry.name.replace('/', "_")),
        _ => root.join(&entry.name[1..]),
    };
    let parent = path.parent().expect("below the root");
    fs::create_dir_all(parent).map_err(in_words)?;
    match &entry.content {
        Content::Bytes(bytes, Mode::Writable) => write(&path, bytes, 0o644),
        Content::Bytes(bytes, Mode::ReadOnly) => write(&path, bytes, 0o444),
        Content::Answer(text) => write(&path, text.as_bytes(), 0o644),
        Content::Directory => fs::create_dir(&path).map_err(in_words),
        Content::Link(target, leads) => {
            symlink(target, &path).map_err(in_words)?;
            is_well_led(root, &path, *leads)
        }
    }
}

/// Writes a new file only: a name that a host says twice is a fault of it.
fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), String> {
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| io::Write::write_all(&mut file, bytes)).map_err(in_words)
}

fn is_well_led(root: &Path, link: &Path, leads: Leads) -> Result<(), String> {
    match (fs::canonicalize(link), leads) {
        (Ok(target), Leads::Somewhere) => {
            let root = fs::canonicalize(root).map_err(in_words)?;
            if !target.starts_with(root) {
                return Err("the link leads out of the host".to_owned());
            }
            Ok(())
        }
        (Err(_), Leads::Somewhere) => {
            Err("the link leads nowhere: write what it leads to above it".to_owned())
        }
        (Ok(_), Leads::Nowhere) => Err("the link leads somewhere".to_owned()),
        (Err(_), Leads::Nowhere) => Ok(()),
    }
}

fn in_words(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists => "is there already, from a line above".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::notation, *};

    fn unpacked(text: &str) -> Result<UnpackedHost, Fault> {
        let host = notation::read("some.host", &format!("goal: dtn\n{text}\n")).expect("a host");
        UnpackedHost::try_of(&host)
    }

    #[test]
    fn files_links_and_answers_are_where_a_machine_looks_for_them() {
        let host = unpacked(
            "/sys/devices/pci0000:00/0000:00:03.0/net/eth0/operstate = up\n\
            /sys/devices/pci0000:00/0000:00:03.0/net/eth0/device -> ../../../0000:00:03.0\n\
            /sys/class/net/eth0 -> ../../devices/pci0000:00/0000:00:03.0/net/eth0\n\
            /sys/class/net/eth0/speed = 25000\n\
            /proc/sys/net/core/rmem_max (read-only) = 212992\n\
            /proc/sys/net/core/wmem_max (unreadable)\n\
            $ tc qdisc show dev eth0/1 ! no such card",
        )
        .unwrap_or_else(|fault| panic!("{fault}"));
        let machine = &host.machine;
        assert_eq!(host.goal.cards, ["eth0"]);
        assert_eq!(host.goal.rate_bits_per_s, 25_000_000_000);
        assert_eq!(machine.link_name("/sys/class/net/eth0/device").unwrap(), "0000:00:03.0");
        assert!(machine.is_read_only("/proc/sys/net/core/rmem_max"));
        assert!(!machine.is_read_only("/sys/class/net/eth0/speed"));
        assert!(machine.sysctl("net.core.wmem_max").is_err());
        let unread = machine.answer(&["tc", "qdisc", "show", "dev", "eth0/1"]).unwrap_err();
        assert_eq!(unread.words(), "tc qdisc show dev eth0/1: no such card");
        assert_eq!(host.files().len(), 6);
    }

    #[test]
    fn the_host_that_the_readme_shows_is_one() {
        let readme = include_str!("README.md").split_once("## Writing one").expect("its title").1;
        let example = readme.lines().skip_while(|line| line.is_empty());
        let example = example.take_while(|line| line.is_empty() || line.starts_with("    "));
        let example: Vec<&str> = example.map(|line| line.get(4..).unwrap_or_default()).collect();
        let stored = notation::read("README.md", &example.join("\n"));
        let host = UnpackedHost::of(&stored.unwrap_or_else(|fault| panic!("{fault}")));
        assert_eq!(host.goal.words(), "data transfer node, 100 Gbit/s, 80 ms");
        assert_eq!(host.machine.number("/sys/class/net/eth0/mtu"), Ok(1500));
        assert!(host.machine.number("/sys/class/net/eth0/carrier").is_err());
    }

    #[test]
    fn what_cannot_be_made_is_named_with_its_line() {
        for (text, words) in [
            ("/a = 1\n/a = 2", "some.host:3: /a: is there already"),
            ("/a/b = 1\n/a = 2", "some.host:3: /a: is there already"),
            ("/a = 1\n/b -> c", "some.host:3: /b: the link leads nowhere"),
            ("/a = 1\n/b (nowhere) -> a", "some.host:3: /b: the link leads somewhere"),
            ("/a = 1\n/b -> ../..", "some.host:3: /b: the link leads out of the host"),
            ("/a = 1\n/a/b = 1", "some.host:3: /a/b: "),
        ] {
            let fault = unpacked(text).err().expect(text);
            assert!(fault.to_string().starts_with(words), "{fault}");
        }
    }
}
