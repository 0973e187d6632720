//! Max-min fair sharing of resources among runs: no run can get more but from one that has less.
//!
//! All rates rise alike until a resource is full or a run is as fast as it can be, which ends the
//! rise of those concerned (Bertsekas and Gallager, Data Networks, 6.5.2: progressive filling).
//! TCP connections that are equally many for each run come near to it.

/// Needs of a run: how fast it can be alone, and what it shares with others.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Most bytes a second that the run can move by itself; finite.
    pub own_bytes_per_s: f64,
    /// Places of the resources that each byte takes up.
    pub uses: Vec<usize>,
}

/// Rate that a run gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    pub bytes_per_s: f64,
    /// Place of the resource that is full; `None` where the run itself is no faster.
    pub held_by: Option<usize>,
}

/// Relative difference of two rates that are taken for equal.
const EQUAL: f64 = 1e-9;

/// Shares out resources of these capacities, in bytes a second.
#[must_use]
pub fn share(capacities: &[f64], demands: &[&Demand]) -> Vec<Share> {
    let mut filling = Filling::new(capacities, demands);
    let mut by_own: Vec<usize> = (0..demands.len()).collect();
    by_own.sort_by(|one, other| {
        demands[*one].own_bytes_per_s.total_cmp(&demands[*other].own_bytes_per_s)
    });
    let mut slow = by_own.into_iter().peekable();
    while filling.open > 0 {
        let level = filling.level();
        let open = filling.open;
        while let Some(run) = slow.next_if(|run| demands[*run].own_bytes_per_s <= level) {
            filling.settle(run, demands[run].own_bytes_per_s, None);
        }
        // Whoever wants less leaves more to the others, so the level may have risen.
        if filling.open < open {
            continue;
        }
        for resource in filling.full_at(level) {
            for run in std::mem::take(&mut filling.users[resource]) {
                filling.settle(run, level, Some(resource));
            }
        }
    }
    filling.shares.into_iter().map(|share| share.expect("none is open")).collect()
}

struct Filling<'a> {
    demands: &'a [&'a Demand],
    shares: Vec<Option<Share>>,
    /// Runs whose rate is not settled.
    open: usize,
    /// Runs of each resource.
    users: Vec<Vec<usize>>,
    /// Rest of each resource that settled runs leave, and the number of its other runs.
    left: Vec<(f64, usize)>,
    /// Resources that have such runs.
    rising: Vec<usize>,
}

impl<'a> Filling<'a> {
    fn new(capacities: &[f64], demands: &'a [&'a Demand]) -> Self {
        let mut users = vec![Vec::new(); capacities.len()];
        for (run, demand) in demands.iter().enumerate() {
            demand.uses.iter().for_each(|resource| users[*resource].push(run));
        }
        let left: Vec<_> =
            capacities.iter().zip(&users).map(|(all, users)| (*all, users.len())).collect();
        let rising = (0..capacities.len()).collect();
        Self {
            demands,
            shares: vec![None; demands.len()],
            open: demands.len(),
            users,
            left,
            rising,
        }
    }

    /// The rate at which the next resource is full.
    fn level(&mut self) -> f64 {
        let left = &self.left;
        self.rising.retain(|resource| left[*resource].1 > 0);
        self.rising.iter().map(|resource| self.level_of(*resource)).fold(f64::INFINITY, f64::min)
    }

    fn level_of(&self, resource: usize) -> f64 {
        let (left, users) = self.left[resource];
        left.max(0.0) / users as f64
    }

    fn full_at(&self, level: f64) -> Vec<usize> {
        let is_full = |resource: &usize| self.level_of(*resource) <= level * (1.0 + EQUAL);
        self.rising.iter().copied().filter(is_full).collect()
    }

    fn settle(&mut self, run: usize, bytes_per_s: f64, held_by: Option<usize>) {
        if self.shares[run].is_some() {
            return;
        }
        self.shares[run] = Some(Share { bytes_per_s, held_by });
        self.open -= 1;
        for resource in &self.demands[run].uses {
            let (left, users) = &mut self.left[*resource];
            *left -= bytes_per_s;
            *users -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(own_bytes_per_s: f64, uses: &[usize]) -> Demand {
        Demand { own_bytes_per_s, uses: uses.to_vec() }
    }

    fn shared(capacities: &[f64], runs: &[Demand]) -> Vec<(f64, Option<usize>)> {
        let shares = share(capacities, &runs.iter().collect::<Vec<_>>());
        shares.iter().map(|share| (share.bytes_per_s, share.held_by)).collect()
    }

    #[test]
    fn runs_on_one_link_have_equal_shares_and_leave_what_they_do_not_need() {
        let fast = || run(1e6, &[0]);
        assert_eq!(shared(&[100.0], &[fast(), fast()]), [(50.0, Some(0)); 2]);
        let shares = shared(&[100.0], &[fast(), run(10.0, &[0]), fast()]);
        assert_eq!(shares, [(45.0, Some(0)), (10.0, None), (45.0, Some(0))]);
        assert_eq!(shared(&[100.0], &[run(30.0, &[])]), [(30.0, None)]);
        assert!(shared(&[100.0], &[]).is_empty());
    }

    /// Two links in a row, one run over both and one over each: the long one has the smaller half,
    /// and the others what it leaves.
    #[test]
    fn a_run_over_two_links_has_the_share_of_the_fuller() {
        let runs = [run(1e6, &[0, 1]), run(1e6, &[0]), run(1e6, &[1])];
        let shares = shared(&[100.0, 40.0], &runs);
        assert_eq!(shares, [(20.0, Some(1)), (80.0, Some(0)), (20.0, Some(1))]);
    }

    /// Shares of seeded networks: no resource is more than full, and each run is as fast as it can
    /// be or meets a full resource on which none is faster. That makes the shares max-min fair.
    #[test]
    fn shares_are_max_min_fair_whatever_the_network() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let capacities: Vec<f64> =
                (0..random.usize(1..12)).map(|_| f64::from(random.u32(1..1000))).collect();
            let runs: Vec<Demand> = (0..random.usize(1..40))
                .map(|_| {
                    let uses = (0..capacities.len()).filter(|_| random.u8(..) < 80).collect();
                    Demand { own_bytes_per_s: f64::from(random.u32(1..500)), uses }
                })
                .collect();
            let shares = share(&capacities, &runs.iter().collect::<Vec<_>>());
            let users = |resource: usize| {
                let all = runs.iter().zip(&shares);
                all.filter(move |(run, _)| run.uses.contains(&resource)).map(|it| it.1.bytes_per_s)
            };
            for (resource, capacity) in capacities.iter().enumerate() {
                let used: f64 = users(resource).sum();
                assert!(used <= capacity * 1.000_001, "seed {seed}: {used} of {capacity}");
            }
            for (run, share) in runs.iter().zip(&shares) {
                match share.held_by {
                    None => assert_eq!(share.bytes_per_s, run.own_bytes_per_s, "seed {seed}"),
                    Some(resource) => {
                        assert!(run.uses.contains(&resource));
                        let used: f64 = users(resource).sum();
                        assert!(used > capacities[resource] * 0.999_999, "seed {seed}: not full");
                        let most = users(resource).fold(0.0, f64::max);
                        assert!(share.bytes_per_s > most * 0.999_999, "seed {seed}: not fair");
                    }
                }
            }
        }
    }
}
