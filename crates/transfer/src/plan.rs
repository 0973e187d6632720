//! Plan of a transfer by many runs (`haul plan`): a tree's names, cut into shards of equal weight.
//!
//! A plan is a directory (SPEC, "Plans"): `shard-00001.jsonl` and so on, each a line about itself
//! and a line for each name, and `plan.json`, which is there once all of them are. Whoever has the
//! directory runs a shard; nobody coordinates. A plan by the size of its shards grows while they
//! are run: its `plan.json` is there first, and says so.

mod balance;
mod cutting;
mod earlier;
mod growing;
mod line;
mod making;
mod plan_file;
mod rules;
mod shard;
mod waiting;

pub use cutting::{LargeFiles, STRIPE_UNIT_BYTES};
pub use earlier::EarlierPlan;
pub use growing::ShardSize;
pub use making::{Entries, Made, PlanRequest, Shards, make};
pub(crate) use plan_file::unread;
pub use plan_file::{Growth, Plan, SHARDS_MAX};
pub use shard::{Shard, ShardLoad, line_again};
