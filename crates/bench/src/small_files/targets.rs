//! Targets of haul with small files, and whether they were met: a rule that stood before any run.
//!
//! Medians of the rounds of one run are judged, on an ext4 with a journal and on xfs, each way.

use super::{Found, MoverFound, PlaceFound, movers::Mover};
use serde::Serialize;

/// Least times as fast as tar.
pub const TAR_TIMES_MIN: f64 = 2.0;
/// Most times as long as the bare floor.
pub const FLOOR_TIMES_MAX: f64 = 1.3;
/// Most processor time a file, of both sides together, in microseconds.
pub const CPU_US_MAX: f64 = 60.0;
/// Rounds that are judged at least.
pub const ROUNDS_MIN: usize = 5;
/// The tree that is judged: at least as many files, of this very size.
pub const FILES_MIN: u64 = 20_000;
pub const FILE_BYTES: u64 = 16 << 10;
/// The file systems that are judged; on others the figures are shown.
pub const FILE_SYSTEMS: [&str; 2] = ["ext4 with a journal", "xfs"];
/// haul's movers, the ways of a tree.
const WAYS: [Mover; 2] = [Mover::HaulPush, Mover::HaulPull];

/// A quantity that is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// The time of tar in times of haul's.
    TimesOfTar,
    /// The time of haul in times of the floor's.
    TimesOfFloor,
    /// Processor time a file of both sides, in microseconds.
    CpuUs,
}

impl Measure {
    pub const ALL: [Self; 3] = [Self::TimesOfTar, Self::TimesOfFloor, Self::CpuUs];

    /// The target in words.
    pub fn needs(self) -> String {
        match self {
            Self::TimesOfTar => format!("at least {TAR_TIMES_MIN:.1} times as fast as tar"),
            Self::TimesOfFloor => format!("at most {FLOOR_TIMES_MAX:.1} times the bare floor"),
            Self::CpuUs => format!("at most {CPU_US_MAX:.0} us of processor a file"),
        }
    }

    fn is_met(self, found: f64) -> bool {
        match self {
            Self::TimesOfTar => found >= TAR_TIMES_MIN,
            Self::TimesOfFloor => found <= FLOOR_TIMES_MAX,
            Self::CpuUs => found <= CPU_US_MAX,
        }
    }
}

/// A target on one file system, one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    event: &'static str,
    table: &'static str,
    pub file_system: String,
    pub mover: Mover,
    pub measure: Measure,
    pub needs: String,
    pub found: Option<f64>,
    /// The value of the bare floor; `None` where that is what is measured against.
    pub of_floor: Option<f64>,
    /// Whether it was met; `None` where it was not judged.
    pub is_met: Option<bool>,
    /// The reason why it was not judged.
    pub why_not: Option<String>,
}

impl Target {
    /// Whether the rule is about this file system.
    pub fn is_of_rule(&self) -> bool {
        FILE_SYSTEMS.contains(&kind_of(&self.file_system))
    }
}

/// All targets: on each file system that was asked for, and on those that are to be judged.
pub fn targets(found: &Found) -> Vec<Target> {
    let mut targets = Vec::new();
    for place in &found.places {
        targets.extend(on_place(found, place));
    }
    for file_system in FILE_SYSTEMS {
        if !found.places.iter().any(|place| kind_of(&place.file_system) == file_system) {
            let why = "it was not asked for".to_owned();
            let movers = Vec::new();
            let missing =
                PlaceFound { file_system: file_system.to_owned(), movers, refused: Some(why) };
            targets.extend(on_place(found, &missing));
        }
    }
    targets
}

/// The kind of a file system by its name, which may also say whose it is.
fn kind_of(file_system: &str) -> &str {
    file_system.split(',').next().unwrap_or_default()
}

fn on_place(found: &Found, place: &PlaceFound) -> Vec<Target> {
    let of = |mover: Mover| place.movers.iter().find(|one| one.mover == mover);
    let mut targets = Vec::new();
    for way in WAYS {
        for measure in Measure::ALL {
            let (haul, tar, floor) = (of(way), of(Mover::Tar), of(Mover::Floor));
            let median = |one: Option<&MoverFound>| Some(one?.seconds()?.median);
            let value = match measure {
                Measure::TimesOfTar => median(tar).zip(median(haul)).map(|(tar, haul)| tar / haul),
                Measure::TimesOfFloor => {
                    median(haul).zip(median(floor)).map(|(haul, floor)| haul / floor)
                }
                Measure::CpuUs => {
                    haul.and_then(|haul| haul.cpu_us(found.tree)).map(|spread| spread.median)
                }
            };
            let of_floor = match measure {
                Measure::TimesOfTar => {
                    median(tar).zip(median(floor)).map(|(tar, floor)| tar / floor)
                }
                Measure::TimesOfFloor => None,
                Measure::CpuUs => {
                    floor.and_then(|floor| floor.cpu_us(found.tree)).map(|spread| spread.median)
                }
            };
            let needed = match measure {
                Measure::TimesOfTar => vec![haul, tar],
                Measure::TimesOfFloor => vec![haul, floor],
                Measure::CpuUs => vec![haul],
            };
            let why_not = why_not(found, place, &needed);
            targets.push(Target {
                event: "target",
                table: "small_file_targets",
                file_system: place.file_system.clone(),
                mover: way,
                measure,
                needs: measure.needs(),
                found: value,
                of_floor,
                is_met: value.filter(|_| why_not.is_none()).map(|value| measure.is_met(value)),
                why_not,
            });
        }
    }
    targets
}

/// The reason why figures of these movers are not judged; `None` where they are.
fn why_not(found: &Found, place: &PlaceFound, needed: &[Option<&MoverFound>]) -> Option<String> {
    if let Some(why) = &place.refused {
        return Some(why.clone());
    }
    for one in needed.iter().flatten() {
        if let Some(why) = &one.refused {
            return Some(format!("{}: {why}", one.mover.name()));
        }
    }
    if !FILE_SYSTEMS.contains(&kind_of(&place.file_system)) {
        return Some(format!("only {} are judged", FILE_SYSTEMS.join(" and ")));
    }
    if !found.is_release {
        return Some("needs a release build, found a debug build".to_owned());
    }
    let tree = found.tree;
    if tree.files < FILES_MIN || tree.file_bytes != FILE_BYTES {
        return Some(format!(
            "needs {FILES_MIN} files of {FILE_BYTES} bytes, found {} of {}",
            tree.files, tree.file_bytes
        ));
    }
    let rounds = needed.iter().map(|one| one.map_or(0, |one| one.rounds.len())).min().unwrap_or(0);
    (rounds < ROUNDS_MIN).then(|| format!("needs {ROUNDS_MIN} rounds, found {rounds}"))
}

/// The verdict in a sentence, and each target that was missed in one more.
pub fn verdict(targets: &[Target]) -> Vec<String> {
    let of_rule: Vec<&Target> = targets.iter().filter(|target| target.is_of_rule()).collect();
    let met = of_rule.iter().filter(|target| target.is_met == Some(true)).count();
    let missed: Vec<&&Target> =
        of_rule.iter().filter(|target| target.is_met == Some(false)).collect();
    let not_judged = of_rule.len() - met - missed.len();
    let all = of_rule.len();
    let first = match (missed.len(), not_judged) {
        (0, 0) => format!("Targets met: all {all}."),
        (0, _) => format!("Targets not all judged: {met} of {all} met, {not_judged} not judged."),
        (count, 0) => format!("Targets missed: {count} of {all}; {met} met."),
        (count, _) => {
            format!("Targets missed: {count} of {all}; {met} met, {not_judged} not judged.")
        }
    };
    let mut sentences = vec![first];
    sentences.extend(missed.iter().map(|target| {
        let misses_too = target.of_floor.filter(|floor| !target.measure.is_met(*floor));
        let beside = misses_too.map(|floor| {
            format!(" The bare floor, without source and network, misses it too: {floor:.2}.")
        });
        format!(
            "{} on {}: {} needed, {:.2} found.{}",
            target.mover.name(),
            target.file_system,
            target.needs,
            target.found.unwrap_or(f64::NAN),
            beside.unwrap_or_default()
        )
    }));
    let mut reasons: Vec<String> = of_rule
        .iter()
        .filter_map(|target| {
            let why = target.why_not.as_deref()?;
            Some(format!("Not judged on {}: {why}.", target.file_system))
        })
        .collect();
    reasons.dedup();
    sentences.extend(reasons);
    sentences
}

#[cfg(test)]
mod tests {
    use super::{super::tests::found, *};

    const EXT4: &str = FILE_SYSTEMS[0];

    /// The targets on the first file system: whether they were met, push and pull.
    fn met(found: &Found) -> Vec<Option<bool>> {
        let own = found.places[0].file_system.clone();
        let targets = targets(found).into_iter().filter(|target| target.file_system == own);
        targets.map(|target| target.is_met).collect()
    }

    #[test]
    fn each_target_is_met_up_to_its_very_number() {
        assert_eq!(met(&found(EXT4, 1.3, 60)), [Some(true); 6]);
        assert_eq!(met(&found("xfs, the directory's own", 1.3, 60)), [Some(true); 6]);
        let one = |at: usize| (0..6).map(|target| Some(target % 3 != at)).collect::<Vec<_>>();
        assert_eq!(met(&found(EXT4, 1.3, 61)), one(2), "processor");
        assert_eq!(met(&found(EXT4, 1.4, 60)), one(1), "the floor");
        let mut slow = found(EXT4, 1.6, 60);
        for floor in &mut slow.places[0].movers[0].rounds {
            floor.moved.seconds *= 2.0;
        }
        assert_eq!(met(&slow), one(0), "tar");
    }

    #[test]
    fn what_is_too_little_is_not_judged_and_says_why() {
        let not = |change: &dyn Fn(&mut Found), says: &str| {
            let mut found = found(EXT4, 1.0, 10);
            change(&mut found);
            assert_eq!(met(&found), [None; 6], "{says}");
            let why = targets(&found)[0].why_not.clone().unwrap();
            assert!(why.contains(says), "{why}");
        };
        not(&|found| found.is_release = false, "release build");
        not(&|found| found.tree.files -= 1, "needs 20000 files");
        not(&|found| found.tree.file_bytes += 1, "of 16384 bytes, found 20000 of 16385");
        not(
            &|found| found.places[0].file_system = "btrfs".to_owned(),
            "only ext4 with a journal and xfs are",
        );
        not(
            &|found| {
                for mover in &mut found.places[0].movers {
                    mover.rounds.pop();
                }
            },
            "needs 5 rounds, found 4",
        );
        let gone = Some("needs tar, found no such program".to_owned());
        let mut found = found(EXT4, 1.0, 10);
        let tar = found.places[0].movers.iter_mut().find(|one| one.mover == Mover::Tar).unwrap();
        (tar.refused, tar.rounds) = (gone, Vec::new());
        let each = [None, Some(true), Some(true)];
        assert_eq!(met(&found), [each, each].concat(), "the others need no tar");
    }

    #[test]
    fn the_verdict_counts_both_file_systems_and_names_what_was_missed() {
        let mut both = found(EXT4, 1.3, 60);
        both.places.extend(found("xfs", 1.3, 60).places);
        assert_eq!(verdict(&targets(&both)), ["Targets met: all 12."]);
        both.places.extend(found("btrfs", 9.0, 900).places);
        assert_eq!(verdict(&targets(&both)), ["Targets met: all 12."], "btrfs is shown only");
        let mut missed = found(EXT4, 1.3, 60);
        missed.places.extend(found("xfs", 1.35, 60).places);
        let said = verdict(&targets(&missed));
        assert_eq!(said.len(), 3, "{said:?}");
        assert_eq!(said[0], "Targets missed: 2 of 12; 10 met.");
        let pull = "haul pull on xfs: at most 1.3 times the bare floor needed, 1.35 found.";
        assert_eq!(said[2], pull);
        let mut near_tar = found(EXT4, 1.3, 60);
        let tar = near_tar.places[0].movers.iter_mut().find(|one| one.mover == Mover::Tar);
        tar.unwrap().rounds.iter_mut().for_each(|round| round.moved.seconds *= 0.5);
        let said = verdict(&targets(&near_tar));
        let push = "haul push on ext4 with a journal: at least 2.0 times as fast as tar needed, \
                    1.15 found. The bare floor, without source and network, misses it too: 1.50.";
        assert_eq!(said[1], push);
        let one = verdict(&targets(&found(EXT4, 1.3, 60)));
        assert_eq!(one[0], "Targets not all judged: 6 of 12 met, 6 not judged.");
        assert_eq!(one[1], "Not judged on xfs: it was not asked for.");
    }
}
