//! Faults that the simulated sessions of one file live through.

use super::{Faults, NONE, run};

#[test]
fn a_file_gets_its_name_once_whichever_session_dies_at_whichever_step() {
    for seed in 1..4 {
        let steps = run(seed, NONE);
        for step in 1..steps + 20 {
            run(seed, Faults { kill_at: Some(step), ..NONE });
        }
    }
}

#[test]
fn a_file_gets_its_name_whenever_the_power_goes() {
    for seed in 11..15 {
        let steps = run(seed, NONE);
        for step in 1..steps + 20 {
            run(seed, Faults { cut_at: Some(step), ..NONE });
        }
    }
}

/// Disks that lose what they had said is durable, and sessions that read back what others brought.
#[test]
fn no_page_that_a_disk_has_lost_is_named() {
    for seed in 0..12 {
        let losing = Faults { losses: 2 + seed % 7, ..NONE };
        let steps = run(seed, losing);
        for step in (1 + seed % 11..steps + 20).step_by(11) {
            run(seed, Faults { cut_at: Some(step), ..losing });
        }
        let (cut_at, kills) = (Some(20 + seed * 9), 20 + seed * 4);
        run(seed, Faults { cut_at, kills, twins: 2, ..losing });
        run(seed, Faults { cut_at, kills, other_cuts: true, rechecks: 3 + seed % 4, ..losing });
    }
}

#[test]
fn a_file_gets_its_name_though_sessions_die_all_the_time() {
    for seed in 100..400 {
        run(seed, Faults { kills: 12 + seed % 50, cut_at: Some(seed % 170), ..NONE });
    }
}

#[test]
fn no_plan_is_all_done_without_the_name_though_its_source_is_replaced_and_comes_back() {
    for seed in 0..400 {
        run(seed, Faults { swaps: 20 + seed % 200, ..NONE });
        let kills = 30 + seed % 70;
        let cut_at = Some(seed % 300);
        run(seed, Faults { swaps: 20 + seed % 200, kills, cut_at, ..NONE });
    }
}

#[test]
fn no_plan_is_all_done_without_the_name_though_another_plan_gives_it_to_its_own_file() {
    for seed in 0..400 {
        let swaps = 20 + seed % 200;
        run(seed, Faults { swaps, are_two_files: true, ..NONE });
        let (kills, cut_at) = (30 + seed % 70, Some(seed % 300));
        run(seed, Faults { swaps, are_two_files: true, kills, cut_at, ..NONE });
    }
}

/// Moments at which a register of one source becomes one of another.
#[test]
fn no_register_speaks_of_a_temporary_that_was_made_anew_and_no_journal_stays() {
    for seed in 0..600 {
        let swaps = 20 + seed % 60;
        run(seed, Faults { swaps, dies_remaking: true, ..NONE });
        run(seed, Faults { swaps, cut_behind_removal: Some(seed % 10), ..NONE });
    }
}

#[test]
fn no_plan_is_all_done_without_the_name_though_somebody_removes_the_temporary() {
    for seed in 0..200 {
        run(seed, Faults { removals: 20 + seed % 100, ..NONE });
        let (swaps, removals, kills) = (30 + seed % 100, 50 + seed % 100, 40 + seed % 70);
        run(seed, Faults { swaps, removals, kills, ..NONE });
    }
}

#[test]
fn a_shard_that_is_run_twice_at_once_brings_its_range_once() {
    for seed in 0..16 {
        let twice = Faults { twins: 2, ..NONE };
        run(seed, twice);
        run(seed, Faults { kills: 20 + seed % 50, ..twice });
        run(seed, Faults { kills: 30 + seed % 50, cut_at: Some(seed * 2), ..twice });
    }
    let steps = run(7, Faults { twins: 2, ..NONE });
    // At every step they die in the first test; here another goes on with the same range.
    for step in (1..steps + 20).step_by(3) {
        run(7, Faults { twins: 2, kill_at: Some(step), ..NONE });
    }
}

#[test]
fn plans_that_cut_a_file_at_other_places_make_one_file() {
    for seed in 0..32 {
        let cuts = Faults { other_cuts: true, ..NONE };
        run(seed, cuts);
        run(seed, Faults { kills: 15 + seed % 50, ..cuts });
        run(seed, Faults { kills: 20 + seed % 50, cut_at: Some(seed * 2), ..cuts });
        run(seed, Faults { kills: 20 + seed % 50, twins: 2, ..cuts });
    }
}

#[test]
fn sessions_that_read_back_what_is_there_take_nothing_from_the_others() {
    for seed in 0..24 {
        let (rechecks, twins) = (2 + seed % 4, 1 + seed as usize % 2);
        let reading = Faults { rechecks, twins, ..NONE };
        run(seed, reading);
        run(seed, Faults { kills: 20 + seed % 50, ..reading });
        run(seed, Faults { kills: 20 + seed % 50, cut_at: Some(seed * 3), ..reading });
        run(seed, Faults { kills: 20 + seed % 50, other_cuts: true, ..reading });
    }
}

#[test]
fn no_plan_is_all_done_without_the_name_though_everything_comes_together() {
    for seed in 0..60 {
        let (swaps, removals, kills) = (40 + seed % 100, 90 + seed % 100, 40 + seed % 70);
        let (rechecks, other_cuts) = (3 + seed % 4, seed % 3 > 0);
        let all = Faults { swaps, removals, kills, rechecks, other_cuts, ..NONE };
        run(seed, all);
        run(seed, Faults { twins: 2, cut_at: Some(seed * 2), are_two_files: true, ..all });
    }
}
