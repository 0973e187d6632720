//! The control groups this process is in, whose limits hold for it as the host's own do.
//!
//! Versions 1 and 2 are both found where /proc/self/mountinfo says that they are mounted
//! (cgroups(7), cgroup_namespaces(7)). A limit may stand at any level up to the mount.

use std::path::{Path, PathBuf};

use crate::{below, text};

/// Levels of a hierarchy that are looked at: more than any real one has.
const LEVELS_MAX: usize = 64;

/// The directories that may hold a limit of `controller`, the innermost first.
pub(crate) fn directories(root: &Path, controller: &str) -> Vec<PathBuf> {
    let Some(groups) = text(&below(root, "/proc/self/cgroup")) else { return Vec::new() };
    let Some(mounts) = text(&below(root, "/proc/self/mountinfo")) else { return Vec::new() };
    let mut found = Vec::new();
    for line in groups.lines() {
        let Some(group) = Group::parse(line) else { continue };
        if group.version_2() || group.has(controller) {
            let mount = mounts.lines().filter_map(Mount::parse).find(|mount| mount.serves(&group));
            if let Some(mount) = mount {
                levels(root, &mount, group.path, &mut found);
            }
        }
    }
    found
}

/// A line of /proc/self/cgroup: `4:memory:/batch/job` (version 1) or `0::/batch/job` (version 2).
struct Group<'text> {
    controllers: &'text str,
    path: &'text str,
}

impl<'text> Group<'text> {
    fn parse(line: &'text str) -> Option<Self> {
        let mut fields = line.splitn(3, ':').skip(1);
        Some(Self { controllers: fields.next()?, path: fields.next()? })
    }

    fn version_2(&self) -> bool {
        self.controllers.is_empty()
    }

    fn has(&self, controller: &str) -> bool {
        self.controllers.split(',').any(|name| name == controller)
    }
}

/// A mounted hierarchy, from a line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
struct Mount<'text> {
    root: &'text str,
    point: &'text str,
    kind: &'text str,
    options: &'text str,
}

impl<'text> Mount<'text> {
    fn parse(line: &'text str) -> Option<Self> {
        let (place, device) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let mut device = device.split(' ');
        let mount = Self {
            root: place.next()?,
            point: place.next()?,
            kind: device.next()?,
            options: device.nth(1)?,
        };
        mount.kind.starts_with("cgroup").then_some(mount)
    }

    fn serves(&self, group: &Group<'_>) -> bool {
        if group.version_2() {
            return self.kind == "cgroup2";
        }
        self.kind == "cgroup"
            && group.controllers.split(',').all(|name| self.options.split(',').any(|o| o == name))
    }
}

/// Adds to `found` the group's directory and those above it, up to the mount point.
fn levels(root: &Path, mount: &Mount<'_>, group: &str, found: &mut Vec<PathBuf>) {
    let top = below(root, mount.point);
    // In a container the mount may show only a part of the hierarchy, which begins at its root.
    let inside = Path::new(group).strip_prefix(mount.root).unwrap_or(Path::new(""));
    // `/..` leads out of a cgroup namespace: only the mount itself can be seen from here.
    let inside = if group.contains("/..") { Path::new("") } else { inside };
    for level in inside.ancestors().take(LEVELS_MAX) {
        found.push(top.join(level));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_2: &str = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate";
    const VERSION_1: &str = "35 31 0:32 /docker/x /sys/fs/cgroup/memory rw shared:9 - \
                             cgroup cgroup rw,memory";

    #[test]
    fn every_level_up_to_the_mount_may_hold_a_limit() {
        let mount = Mount::parse(VERSION_2).unwrap();
        let mut found = Vec::new();
        levels(Path::new("/"), &mount, "/batch/job", &mut found);
        let expected = ["/sys/fs/cgroup/batch/job", "/sys/fs/cgroup/batch", "/sys/fs/cgroup"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn a_container_sees_its_part_of_the_hierarchy() {
        let mount = Mount::parse(VERSION_1).unwrap();
        let mut found = Vec::new();
        levels(Path::new("/r"), &mount, "/docker/x/job", &mut found);
        let expected = ["/r/sys/fs/cgroup/memory/job", "/r/sys/fs/cgroup/memory"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn a_group_outside_the_namespace_leaves_the_mount_itself() {
        let mount = Mount::parse(VERSION_2).unwrap();
        let mut found = Vec::new();
        levels(Path::new("/"), &mount, "/../../etc", &mut found);
        assert_eq!(found, [PathBuf::from("/sys/fs/cgroup")]);
    }

    #[test]
    fn a_version_1_mount_serves_the_controllers_in_its_options() {
        let mount = Mount::parse(VERSION_1).unwrap();
        assert!(mount.serves(&Group::parse("4:memory:/docker/x").unwrap()));
        assert!(!mount.serves(&Group::parse("3:cpu,cpuacct:/docker/x").unwrap()));
        assert!(!mount.serves(&Group::parse("0::/").unwrap()));
    }

    #[test]
    fn lines_that_make_no_sense_are_passed_over() {
        assert!(Group::parse("nonsense").is_none());
        assert!(Mount::parse("31 23 0:28 / /sys rw - sysfs sysfs rw").is_none());
        assert!(Mount::parse("31 23 - cgroup2").is_none());
    }
}
