//! The suite that tries the real `haul`, in one binary, a subject a file.
//!
//! What these share is in `harness/`.

#![allow(clippy::unwrap_used)]

#[macro_use]
mod harness;

mod bad_days;
mod bad_input;
#[cfg(feature = "bench")]
mod bench;
#[cfg(feature = "bench")]
mod bench_fabric;
#[cfg(feature = "bench")]
mod bench_media;
#[cfg(feature = "bench")]
mod bench_small_files;
#[cfg(feature = "bench")]
mod bench_studies;
#[cfg(feature = "bench")]
mod bench_tuning;
mod changing_plans;
mod choosing;
mod command_line;
mod connections;
mod counts;
mod crash;
mod durable_order;
mod engines;
mod fleet_reports;
mod hostile;
mod hostile_bytes;
mod hostile_floods;
mod hostile_lies;
mod hostile_links;
mod hostile_rights;
mod hostile_server;
mod listing;
mod manifests;
mod media;
mod media_admission;
mod media_beside_nginx;
mod media_long_run;
mod media_players;
mod media_status;
mod media_tls;
mod mirrors;
mod network;
mod parts;
mod plans;
mod private;
mod probe_disk;
mod probe_net;
mod probe_path;
mod proxies;
mod ranges;
mod rdma;
mod rdma_probe;
mod reading_ahead;
mod recordings;
mod rights;
mod rights_lost;
mod screens;
mod second_look;
mod serving;
mod source_forms;
mod ssh;
mod ssh_copy;
mod ssh_copy_ways;
mod ssh_install;
mod ssh_people;
mod ssh_plans;
mod ssh_ways;
mod staged;
mod told_keys;
mod transfer;
mod tree_options;
mod trees;
mod tune;
mod verdicts;
mod wan;
mod watch;
