//! The number of files and connections that a program may have open.

use super::{Check, Group, soft_limit};
use crate::tune::{Finding, Goal, Machine, Role, Weight};

pub const CHECK: Check = Check {
    name: "open-files",
    group: Group::System,
    summary: "programs may have enough files and connections open (RLIMIT_NOFILE)",
    why: "Each stream and each file under way is one. A media server with thousands of viewers \
        turns away those beyond the limit; a node that moves many small files at once is slowed \
        down by it.",
    source: "getrlimit(2), limits.conf(5)",
    look,
};

fn look(machine: &Machine, goal: &Goal) -> Vec<Finding> {
    const SUBJECT: &str = "open files";
    let (wanted, weight): (u64, _) = match goal.role {
        Role::Media => (65_536, Weight::Medium),
        Role::Dtn | Role::TestHost => (8192, Weight::Low),
    };
    vec![match soft_limit(machine, "Max open files") {
        Ok(u64::MAX) => Finding::good(weight, SUBJECT, "unlimited"),
        Ok(files) if files >= wanted => Finding::good(weight, SUBJECT, &files.to_string()),
        Ok(files) => {
            let file = "/etc/security/limits.d/90-haul-nofile.conf";
            Finding::improve(weight, SUBJECT, &files.to_string(), &wanted.to_string())
                .note(format!("counts from the next login; a service needs LimitNOFILE={wanted}"))
                .command(format!("echo '* - nofile {wanted}' > {file}"))
        }
        Err(unread) => Finding::unknown(SUBJECT, &unread),
    }]
}
