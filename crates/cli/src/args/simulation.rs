//! Fleet of `haul plan --simulate`, in words: `nodes=4,nic=25Gbit,server-nic=100Gbit`.

use super::{
    usage_problem,
    values::{Period, parse_rate},
};
use haul_transfer::{
    NodeFailures, Problem, Resource, ResourceRates, SIMULATED_MAX, SimulatedFleet,
};
use std::{collections::BTreeMap, ops::RangeInclusive, str::FromStr};

/// Words that name a resource's rate.
const RATES: [(&str, Resource); 7] = [
    ("shared-source", Resource::SharedSource),
    ("disk", Resource::NodeDisk),
    ("nic", Resource::NodeNic),
    ("core", Resource::Core),
    ("server-nic", Resource::ServerNic),
    ("server-disk", Resource::ServerDisk),
    ("shared-target", Resource::SharedTarget),
];
/// The other words.
const WORDS: [&str; 11] = [
    "nodes", "runs", "servers", "run", "files", "start", "mtbf", "requeue", "repair", "seed", "mtu",
];
/// Packets that IPv4 must be able to carry (RFC 791), and the largest.
const MTU_BYTES: RangeInclusive<u32> = 576..=65_535;
/// Waits of a shard and of a node after a failure, where none are named; Slurm waits two minutes.
const REQUEUE_S: f64 = 120.0;
const REPAIR_S: f64 = 600.0;

/// A fleet whose number of servers may be the plan's.
#[derive(Clone, Debug, PartialEq)]
pub struct LowFleet {
    fleet: SimulatedFleet,
    has_servers: bool,
}

impl LowFleet {
    /// The fleet, with a server for each target where no number was named.
    ///
    /// # Errors
    /// If a rate is that of a machine which is not there.
    pub fn with_targets(&self, targets: usize) -> Result<SimulatedFleet, Problem> {
        let mut fleet = self.fleet.clone();
        if !self.has_servers {
            fleet.servers = u32::try_from(targets).unwrap_or(SIMULATED_MAX);
        }
        for (word, resource) in RATES {
            let count = fleet.count(resource);
            let mut single = fleet.rates.get(&resource).into_iter().flat_map(|it| it.single.keys());
            if let Some(number) = single.find(|number| !(1..=count).contains(*number)) {
                let what = format!("cannot simulate {word}.{number}");
                let needs = format!("a number from 1 to {count}");
                let hint = "name more nodes= or servers=, or another number";
                return Err(usage_problem(&what, &needs, &number.to_string(), hint));
            }
        }
        Ok(fleet)
    }
}

/// Reads the fleet of `--simulate`.
///
/// # Errors
/// Names the word that is wrong, and what it should be.
pub fn parse_fleet(text: &str) -> Result<LowFleet, String> {
    let mut words = Words::read(text)?;
    let nodes = words.number("nodes", 1..=SIMULATED_MAX)?.ok_or_else(|| {
        "how many nodes send? Write nodes=4,nic=25Gbit,servers=2,server-nic=100Gbit".to_owned()
    })?;
    let servers = words.number("servers", 1..=SIMULATED_MAX)?;
    let mut fleet = SimulatedFleet::new(nodes, servers.unwrap_or(1));
    fleet.runs = words.number("runs", 1..=SIMULATED_MAX)?.unwrap_or(fleet.runs);
    fleet.mtu_bytes = words.number("mtu", MTU_BYTES)?.unwrap_or(fleet.mtu_bytes);
    fleet.run_bytes_per_s = words.value("run", parse_rate)?.map(|rate| rate as f64);
    let files = words.number("files", 1..=u32::MAX)?;
    fleet.run_files_per_s = files.map_or(fleet.run_files_per_s, f64::from);
    fleet.start_s = words.seconds("start")?.unwrap_or(fleet.start_s);
    fleet.rates = words.rates()?;
    if fleet.rates.is_empty() && fleet.run_bytes_per_s.is_none() {
        return Err("no rate is named; write at least that of the nodes' NICs, nic=25Gbit".into());
    }
    fleet.failures = words.failures()?;
    fleet.seed = words.value("seed", u64::from_str)?.unwrap_or(fleet.seed);
    Ok(LowFleet { fleet, has_servers: servers.is_some() })
}

/// Values by their words, as they stand.
struct Words<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Words<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let mut values = BTreeMap::new();
        for pair in text.split(',').map(str::trim) {
            let (word, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("{pair:?} has no value; write it like nic=25Gbit"))?;
            let kind = word.split_once('.').map_or(word, |it| it.0);
            let rates = RATES.map(|it| it.0);
            let is_known = rates.contains(&kind) || (WORDS.contains(&kind) && kind == word);
            if !is_known {
                let known = [&WORDS[..], &rates[..]].concat().join(", ");
                return Err(format!("{word:?} is none of {known}"));
            }
            if values.insert(word, value).is_some() {
                return Err(format!("{word:?} stands there twice"));
            }
        }
        Ok(Self(values))
    }

    fn value<T, E: ToString>(
        &mut self,
        word: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, String> {
        let value = self.0.remove(word).map(&parse).transpose();
        value.map_err(|error| format!("{word}: {}", error.to_string()))
    }

    fn number(&mut self, word: &str, range: RangeInclusive<u32>) -> Result<Option<u32>, String> {
        let (least, most) = (*range.start(), *range.end());
        self.value(word, |text| {
            let number = text.parse().ok().filter(|number| range.contains(number));
            number.ok_or_else(|| format!("{text:?} is no number from {least} to {most}"))
        })
    }

    fn seconds(&mut self, word: &str) -> Result<Option<f64>, String> {
        Ok(self.value(word, Period::from_str)?.map(|period| period.0.as_secs_f64()))
    }

    /// Rates of resources: `nic=25Gbit` of each, `nic.2=10Gbit` of the second.
    fn rates(&mut self) -> Result<BTreeMap<Resource, ResourceRates>, String> {
        let mut rates: BTreeMap<Resource, ResourceRates> = BTreeMap::new();
        for (kind, resource) in RATES {
            let of_kind = |word: &str| word.split('.').next() == Some(kind);
            let words: Vec<&str> = self.0.keys().copied().filter(|word| of_kind(word)).collect();
            for word in words {
                let Some(rate) = self.value(word, parse_rate)?.map(|rate| rate as f64) else {
                    continue;
                };
                let entry = rates.entry(resource).or_default();
                let Some((_, number)) = word.split_once('.') else {
                    entry.each = Some(rate);
                    continue;
                };
                let is_several = resource.is_of_node() || resource.is_of_server();
                let number = number.parse().ok().filter(|_| is_several);
                let number = number.ok_or_else(|| {
                    format!("{word:?} is no part; write nic.2 or server-disk.1 for a single one")
                })?;
                entry.single.insert(number, rate);
            }
        }
        Ok(rates)
    }

    fn failures(&mut self) -> Result<Option<NodeFailures>, String> {
        let mean_up_s = self.seconds("mtbf")?;
        let (requeue_s, repair_s) = (self.seconds("requeue")?, self.seconds("repair")?);
        let Some(mean_up_s) = mean_up_s else {
            if requeue_s.is_some() || repair_s.is_some() {
                return Err("requeue and repair count only where nodes fail; add mtbf=30d".into());
            }
            return Ok(None);
        };
        if mean_up_s <= 0.0 {
            return Err("mtbf: a node that never is up sends nothing; write it like 30d".into());
        }
        let (requeue_s, repair_s) = (requeue_s.unwrap_or(REQUEUE_S), repair_s.unwrap_or(REPAIR_S));
        Ok(Some(NodeFailures { mean_up_s, requeue_s, repair_s }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_is_read_with_the_units_of_other_options() {
        let text = "nodes=4,runs=2,nic=25Gbit,nic.2=10Gbit,server-disk=2G,core=1Gbit,run=500M,\
                    files=1000,start=2s,mtbf=30d,requeue=1m,mtu=9000,seed=7";
        let low = parse_fleet(text).unwrap();
        let fleet = low.with_targets(3).unwrap();
        assert_eq!((fleet.nodes, fleet.runs, fleet.servers, fleet.seed), (4, 2, 3, 7));
        let rates = &fleet.rates[&Resource::NodeNic];
        assert_eq!((rates.each, &rates.single), (Some(3.125e9), &[(2, 1.25e9)].into()));
        assert_eq!(fleet.rate(Resource::ServerDisk, 3), Some((2u64 << 30) as f64));
        assert_eq!(fleet.rate(Resource::Core, 1), Some(1.25e8));
        assert_eq!((fleet.run_bytes_per_s, fleet.run_files_per_s), (Some(524_288_000.0), 1000.0));
        assert_eq!((fleet.start_s, fleet.mtu_bytes), (2.0, 9000));
        let failures = NodeFailures { mean_up_s: 2_592_000.0, requeue_s: 60.0, repair_s: REPAIR_S };
        assert_eq!(fleet.failures, Some(failures));
        let low = parse_fleet("nodes=1, run=1G, servers=2").unwrap();
        assert_eq!(low.with_targets(5).unwrap().servers, 2);
        for text in ["nodes=2,nic.3=1G", "nodes=2,server-nic.6=1G"] {
            let problem = parse_fleet(text).unwrap().with_targets(5).unwrap_err().to_string();
            assert!(problem.contains("a number from 1 to"), "{problem}");
        }
    }

    #[test]
    fn a_word_that_is_no_fleet_is_named_with_what_it_should_be() {
        for (text, said) in [
            ("nic=25Gbit", "how many nodes"),
            ("nodes=4", "no rate is named"),
            ("nodes=4,nic", "\"nic\" has no value"),
            ("nodes=4,nics=1Gbit", "none of nodes, runs"),
            ("nodes=4,nic=1Gbit,nic=2Gbit", "twice"),
            ("nodes=4,nic=1Gb", "nic: \"1Gb\" may mean bits or bytes"),
            ("nodes=0,nic=1Gbit", "nodes: \"0\" is no number from 1 to 4096"),
            ("nodes=2,nic.x=1Gbit", "\"nic.x\" is no part"),
            ("nodes=2,core.1=1Gbit", "\"core.1\" is no part"),
            ("nodes=2,nodes.1=3,nic=1G", "none of nodes"),
            ("nodes=2,nic=1G,start=soon", "start: \"soon\" is not a duration"),
            ("nodes=2,nic=1G,requeue=1m", "add mtbf=30d"),
            ("nodes=2,nic=1G,mtbf=0s", "never is up"),
            ("nodes=2,nic=1G,mtu=20", "mtu: \"20\" is no number from 576"),
        ] {
            let found = parse_fleet(text).unwrap_err();
            assert!(found.contains(said), "{text}: {found}");
        }
    }
}
