//! `--install-remote`: haul comes to a machine that has none, by the ssh that starts it.

use crate::harness::{
    Place, assert_same_files, is_root,
    process::Ran,
    sshd::{Sshd, SshdSetup, there},
    wait_until,
};
use haul_testkit::{mount::Mount, skip::skip};
use std::{
    ffi::OsString,
    fs::{self, File, FileTimes},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

/// Command that lets the request and the begin of the program through, and ends.
const CUT: &str = "dd bs=4k count=99 2>/dev/null";
const PROGRAM: &str = env!("CARGO_BIN_EXE_haul");

fn program_bytes() -> u64 {
    fs::metadata(PROGRAM).unwrap().len()
}

/// Runs a push of `a` with `--install-remote`, by an ssh whose standard input goes through these
/// words of sh(1), which end in a `|`.
fn push_by(place: &Place, sshd: &Sshd, filter: &str, options: &[OsString]) -> Ran {
    let ssh = format!("{filter} {} \"$@\"", sshd.ssh_command());
    fs::write(place.path("my-ssh"), ssh).unwrap();
    let ssh = format!("sh {}", place.path("my-ssh").display());
    let words = words!["push", place.source("a"), there("a"), "--install-remote", "--ssh", ssh];
    place.run(&[words, options.to_vec()].concat())
}

/// Runs the push and says how many bytes ssh got on standard input.
fn counted_push(place: &Place, sshd: &Sshd) -> (Ran, u64) {
    let seen = place.path("seen");
    let ran = push_by(place, sshd, &format!("tee {} |", seen.display()), &[]);
    assert_same_files(&place.source("a"), &sshd.home("a"));
    fs::remove_file(sshd.home("a")).unwrap();
    (ran, fs::metadata(seen).unwrap().len())
}

/// Files in the cache there, the programs among them by name.
fn copies(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn tells_of_a_copy(ran: &Ran) -> bool {
    let told = ran.named("fallback");
    told.iter().any(|event| event["from_to"] == "no haul -> a copy of this one")
}

#[test]
fn a_machine_without_haul_gets_this_one_once() {
    let place = Place::new();
    let Some(sshd) = SshdSetup::new().without_haul().start(&place) else { return };
    place.file(&place.source("a"), 300_000);
    let (ran, sent) = counted_push(&place, &sshd);
    ran.ok();
    assert!(tells_of_a_copy(&ran) && sent > program_bytes(), "{sent}: {ran:?}");
    let cache = sshd.home(".cache/haul");
    let [copy] = &copies(&cache)[..] else { panic!("{:?}", copies(&cache)) };
    assert_eq!(fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o700);
    let is_same = || fs::read(copy).unwrap() == fs::read(PROGRAM).unwrap();
    assert!(is_same());
    let log = fs::read_to_string(place.path("sshd.log")).unwrap();
    assert_eq!(log.matches("Accepted publickey").count(), 2, "one is the harness's: {log}");

    let (ran, sent) = counted_push(&place, &sshd);
    ran.ok();
    assert!(!tells_of_a_copy(&ran) && sent < 10_000, "{sent}: {ran:?}");

    // A copy that was changed, and would run, is not run. Of others, the two used last stay.
    File::options().write(true).open(copy).unwrap().write_all_at(b"#!/bin/true\n", 0).unwrap();
    for age in 1..6_u32 {
        let old = File::create(cache.join(format!("haul-0.0.{age}-0123456789ab"))).unwrap();
        let time = SystemTime::now() - Duration::from_secs(1000) * age;
        old.set_times(FileTimes::new().set_modified(time)).unwrap();
    }
    let (ran, sent) = counted_push(&place, &sshd);
    ran.ok();
    assert!(tells_of_a_copy(&ran) && sent > program_bytes(), "{sent}: {ran:?}");
    assert!(is_same());
    let names = ["haul-0.0.1-0123456789ab", "haul-0.0.2-0123456789ab"];
    let kept = names.map(|name| cache.join(name));
    assert_eq!(copies(&cache), [&kept[..], std::slice::from_ref(copy)].concat());
}

#[test]
fn a_haul_that_is_there_is_taken_and_nothing_is_copied() {
    let place = Place::new();
    let Some(sshd) = Sshd::start(&place) else { return };
    place.file(&place.source("a"), 1000);
    let (ran, sent) = counted_push(&place, &sshd);
    ran.ok();
    assert!(!tells_of_a_copy(&ran) && sent < 10_000, "{sent}: {ran:?}");
    drop(sshd);
    // Nor where a forced command starts it, whatever ssh is told.
    let place = Place::new();
    place.file(&place.source("a"), 1000);
    let forced = format!("command=\"{PROGRAM} serve --over-ssh\",restrict");
    let setup = SshdSetup::new().without_haul().key_options(&forced);
    let Some(sshd) = setup.start(&place) else { return };
    counted_push(&place, &sshd).0.ok();
    assert!(!sshd.home(".cache").exists());
}

#[test]
fn what_a_login_script_prints_is_no_part_of_it() {
    let place = Place::new();
    let Some(sshd) = SshdSetup::new().without_haul().start(&place) else { return };
    fs::write(sshd.home(".bashrc"), "echo Welcome; head -c 9000 /dev/zero; echo >&2 hm\n").unwrap();
    place.file(&place.source("a"), 1000);
    let (ran, _) = counted_push(&place, &sshd);
    assert!(tells_of_a_copy(&ran), "{ran:?}");
    let listed = sshd.run(&place, &words!["ls", there(""), "--install-remote"]);
    assert_eq!(listed.status, 0, "{listed:?}");
}

/// Most clusters mount their homes so.
#[test]
fn a_directory_where_no_program_may_run_is_passed_over() {
    let place = Place::new();
    if !is_root() {
        return skip("root, to mount a file system", "another user");
    }
    let Some(sshd) = SshdSetup::new().without_haul().start(&place) else { return };
    place.file(&place.source("a"), 1000);
    fs::create_dir_all(sshd.home(".cache")).unwrap();
    let mount = match Mount::tmpfs(&sshd.home(".cache"), "256M") {
        Ok(mount) => mount,
        Err(why) => return skip("a tmpfs", why.to_string()),
    };
    let remount = ["-o", "remount,noexec"];
    let mounted = Command::new("mount").args(remount).arg(sshd.home(".cache")).status().unwrap();
    assert!(mounted.success());
    let (ran, _) = counted_push(&place, &sshd);
    assert!(tells_of_a_copy(&ran), "{ran:?}");
    assert_eq!(copies(&sshd.home(".local/lib/haul")).len(), 1);
    assert!(copies(&sshd.home(".cache/haul")).is_empty());
    drop((sshd, mount));
}

/// A place where others may write is no place for a program of one's own.
#[test]
fn a_directory_of_another_user_is_passed_over() {
    let place = Place::new();
    let Some(sshd) = SshdSetup::new().without_haul().start(&place) else { return };
    place.file(&place.source("a"), 1000);
    fs::create_dir_all(sshd.home(".cache")).unwrap();
    fs::create_dir(place.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(place.path("elsewhere"), sshd.home(".cache/haul")).unwrap();
    if is_root() {
        fs::create_dir_all(sshd.home(".local/lib/haul")).unwrap();
        std::os::unix::fs::chown(sshd.home(".local/lib/haul"), Some(65_534), None).unwrap();
    }
    fs::create_dir(place.path("tmp")).unwrap();
    fs::write(sshd.home(".bashrc"), format!("export TMPDIR={}\n", place.path("tmp").display()))
        .unwrap();
    if sshd.ssh(&["echo $TMPDIR"]).stdout.len() < 2 {
        return skip("a login shell that reads .bashrc, as bash of Debian", "another");
    }
    counted_push(&place, &sshd).0.ok();
    assert!(copies(&place.path("elsewhere")).is_empty());
    if is_root() {
        assert!(copies(&sshd.home(".local/lib/haul")).is_empty());
        let own = format!("haul-{}", rustix::process::geteuid().as_raw());
        assert_eq!(copies(&place.path("tmp").join(own)).len(), 1);
    }
}

#[test]
fn a_machine_of_another_kind_is_told_and_gets_nothing() {
    let place = Place::new();
    let tools = place.path("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("uname"), "#!/bin/sh\necho 'Linux \"m68k\"'\n").unwrap();
    fs::set_permissions(tools.join("uname"), fs::Permissions::from_mode(0o755)).unwrap();
    let setup = SshdSetup::new().without_haul().search_first(&tools);
    let Some(sshd) = setup.start(&place) else { return };
    place.file(&place.source("a"), 1000);
    let ran = push_by(&place, &sshd, "", &[]);
    ran.refused(&["haul cannot be copied there", "m68k", "built for it"]);
    assert!(!sshd.home(".cache").exists() && !sshd.home("a").exists());
}

/// A processor or a libc that is too old for this program shows when it runs.
#[test]
fn a_copy_that_does_not_run_there_gets_no_name() {
    let place = Place::new();
    let tools = place.path("tools");
    fs::create_dir(&tools).unwrap();
    // The program arrives as another one.
    let text = "#!/bin/sh\nif [ \"$2\" -gt 100000 ]; then /usr/bin/head \"$@\" >/dev/null\n\
                printf '#!/bin/sh\\necho GLIBC_9.9 not found >&2; exit 1\\n'\n\
                else exec /usr/bin/head \"$@\"; fi\n";
    fs::write(tools.join("head"), text).unwrap();
    let sum = "#!/bin/sh\nread -r all; echo \"$SUM  -\"\n";
    fs::write(tools.join("sha256sum"), sum).unwrap();
    for tool in ["head", "sha256sum"] {
        fs::set_permissions(tools.join(tool), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let setup = SshdSetup::new().without_haul().search_first(&tools);
    let Some(sshd) = setup.start(&place) else { return };
    place.file(&place.source("a"), 1000);
    let ran = push_by(&place, &sshd, "", &[]);
    ran.refused(&["did not arrive there whole"]);
    let said = Command::new("sha256sum").arg(PROGRAM).output().unwrap().stdout;
    let digest = String::from_utf8(said[..64].to_vec()).unwrap();
    fs::write(tools.join("sha256sum"), sum.replace("$SUM", &digest)).unwrap();
    let ran = push_by(&place, &sshd, "", &[]);
    ran.refused(&["this haul cannot run there", "glibc_9.9"]);
    // The script removes it when it ends, behind its answer.
    wait_until("the copy's end", || copies(&sshd.home(".cache/haul")).is_empty());
}

#[test]
fn a_copy_that_is_cut_in_the_middle_leaves_no_program() {
    let place = Place::new();
    let Some(sshd) = SshdSetup::new().without_haul().start(&place) else { return };
    place.file(&place.source("a"), 1000);
    let cache = sshd.home(".cache/haul");
    let ran = push_by(&place, &sshd, &format!("{CUT} |"), &[]);
    ran.refused(&["did not arrive there whole", "same command"]);
    assert!(copies(&cache).is_empty(), "{:?}", copies(&cache));
    // ssh itself is gone.
    let id = place.path("id");
    let cut = format!(
        "{{ {CUT}; kill -9 $(cat {id}); }} | sh -c 'echo $$ > {id}; exec \"$@\"' sh",
        id = id.display()
    );
    let ran = push_by(&place, &sshd, &cut, &[]);
    assert_eq!(ran.status, 2, "{ran:?}");
    let runs = |path: &PathBuf| {
        let is_named = path.file_name().unwrap().to_str().unwrap().starts_with("haul-");
        is_named || fs::metadata(path).is_ok_and(|it| it.permissions().mode() & 0o111 != 0)
    };
    assert!(!copies(&cache).iter().any(runs), "{:?}", copies(&cache));
    counted_push(&place, &sshd).0.ok();
}

#[test]
fn what_no_copy_helps_is_refused_in_words() {
    let place = Place::new();
    place.file(&place.source("a"), 1000);
    let with = |haul: &str| {
        let words = words!["push", place.source("a"), there("a"), "--install-remote"];
        place.run(&[words, words!["--remote-haul", haul, "--ssh", "no-such-ssh"]].concat())
    };
    with("subsystem:haul").refused(&["cannot take --install-remote", "sshd there starts"]);
    with("sudo haul").refused(&["cannot take --install-remote", "a name or a path"]);
    with("/opt/haul").refused(&["cannot run no-such-ssh"]);
}
