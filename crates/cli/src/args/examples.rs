//! The texts below each long help and in each man page: examples, exit statuses, environment.

use clap::Command;

/// A section below a help: a title and lines as they are shown.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub title: &'static str,
    pub lines: &'static str,
}

const EXIT_STATUS: Section = Section {
    title: "Exit status",
    lines: "\
0  all done and verified
1  at least one file failed, or the transfer was broken midway: the same command resumes it
2  nothing could start: wrong arguments, no connection, no right",
};

const PLAIN_EXIT_STATUS: Section = Section {
    title: "Exit status",
    lines: "\
0  done
2  nothing could start: wrong arguments, or the state directory cannot be used",
};

const TOKEN_ENVIRONMENT: Section = Section {
    title: "Environment",
    lines: "\
HAUL_TOKEN  the token, where the URL has none: so no other user sees it in the process list",
};

const STATE_ENVIRONMENT: Section = Section {
    title: "Environment",
    lines: "\
HAUL_STATE  the directory of the server's key and tokens, where --state is not given",
};

const ALL: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul demo                               a minute that shows it all
haul serve /data                        receive into and send from /data; prints a URL
haul push *.vdif URL/run7/              send files into /data/run7
haul pull URL/run7 .                    fetch a directory
haul push run7 ann@dtn1:archive/        to where ssh leads, without a server that runs
haul copy ann@dtn1:run7 bob@dtn2:data/  from one machine to another, not through this one
haul plan run7 URL --shards 16 --out p  for sixteen machines: haul push --plan p --shard 3
haul report p                           what its runs have done, and what is left
haul ls URL/run7                        what is there
haul verify run7.b3 /data               read it again, years later
haul probe net URL                      what the network carries, and what limits it
haul probe disk /data                   how fast a disk is, and for how long
haul probe path run7 URL/               what would limit it, before it is moved
haul tune                               what to change on this host, and why
haul media /films                       films over HTTP, to players and browsers
haul bench engines                      what each engine does on this host",
    },
    EXIT_STATUS,
    Section {
        title: "Environment",
        lines: "\
HAUL_TOKEN  the token for push and pull, where the URL has none
HAUL_STATE  the directory of the server's key and tokens
HAUL_NODE   the machine's name in the report of a run, where that of the host is another",
    },
];

const DEMO: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul demo                               at most a minute
haul demo --size 20G --dir /mnt/data    on another disk, with a larger file",
    },
    Section {
        title: "Exit status",
        lines: "\
0  all done and verified
1  a step failed
2  nothing could start: no room, no directory",
    },
    Section { title: "Environment", lines: "TMPDIR  where the fresh directory is made" },
];

const SERVE: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul serve /data                        prints a URL; ends with Ctrl-C
haul serve /data --read-only            nobody writes here
haul serve . --once                     ends after one session
haul serve null:                        the network and the sender's disk, without this disk
haul serve /data --listen 10.0.0.1:7000 --advertise dtn1.example.org",
    },
    Section {
        title: "Signals",
        lines: "\
SIGINT, SIGTERM  cuts the sessions, which go on when it is started again
SIGHUP           changes nothing, as tokens are read at each use; a server at a terminal ends,
                 as its terminal has been closed",
    },
    Section {
        title: "Exit status",
        lines: "\
0  ended by Ctrl-C, SIGTERM, or with --once after its session
2  nothing could start: the address, ROOT or the state directory cannot be used",
    },
    STATE_ENVIRONMENT,
];

const MEDIA: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul media /films                       for this machine: http://127.0.0.1:8080/
haul media /films --listen 0.0.0.0:80   for all
haul media /films --access-log media.log
haul media /films --measure             what a stream costs here: from then on none is too many
haul media capacity /films --rate 8M    how many viewers there may be, and why
haul media /films --status 10.0.0.1:8081  the dashboard for that network
curl -s http://127.0.0.1:8081/api/sessions | jq '.sessions[] | [.peer, .target, .misses]'
ffplay http://127.0.0.1:8080/a.mp4      seeks by asking for parts",
    },
    Section {
        title: "Configuration (--config)",
        lines: "\
rate = \"auto\"         as --rate; so are max-streams, network, margin (percent), elsewhere (list)
reserve = 10          percent of each resource kept for streams of higher priority
client-rates = false  ?rate= and ?priority= in requests are not heard
[[paths]]             may be repeated; the first that fits and says something of it counts
match = \"/live/**\"   paths below ROOT; without a slash at its beginning, below any directory
rate = \"4M\"
priority = \"high\"     low, normal or high: who is refused last",
    },
    Section {
        title: "Signals",
        lines: "\
SIGINT, SIGTERM  takes no more connections, and ends when all who have asked are answered,
                 after --drain-time at the latest; a second signal cuts them
SIGHUP           reads the configuration, what was measured, the certificate and its key
                 again, and opens the access log again; a server at a terminal that has none
                 of these files ends, as its terminal has been closed",
    },
    Section {
        title: "Exit status",
        lines: "\
0  ended by Ctrl-C or SIGTERM
2  nothing could start: an address, ROOT or the access log cannot be used",
    },
];

const PUSH: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul push scan.vdif URL/                one file
haul push run7 URL/archive/             a directory: archive/run7
haul push run7/ URL/archive/            its contents: archive/*
haul push a.bin URL/b.bin               under another name
haul push --bwlimit 8Gbit run7 URL/     leave room for others
haul push run7 URL/ --manifest run7.b3  with a BLAKE3 line for each file
haul push run7 URL/ --verify-target     read back from the server's disk before it counts
haul push --follow scan.vdif URL/       while it is written, until its writer closes it
haul push --watch /data/run7 URL/       what appears there too, until Ctrl-C
haul push zero:100G URL/null:           the network alone, without any disk
haul push run7 ann@dtn1:archive/        by ssh: below the home directory there
haul push run7 dtn1:/data/ --ssh 'ssh -p 2222'",
    },
    EXIT_STATUS,
    TOKEN_ENVIRONMENT,
];

const PULL: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul pull URL/scan.vdif .               one file
haul pull URL/run7 /data                a directory: /data/run7
haul pull URL/run7/ /data               its contents: /data/*
haul pull URL/a URL/b .                 several
haul pull 'URL/run7/*.vdif' .           what fits there
haul pull URL/run7 . --manifest run7.b3 with a BLAKE3 line for each file
haul pull --follow URL/scan.vdif .      while it is written there
haul pull URL/scan.vdif null:           the server's disk and the network, without this disk
haul pull ann@dtn1:/data/run7 .         by ssh, from a machine that has haul",
    },
    EXIT_STATUS,
    TOKEN_ENVIRONMENT,
];

const COPY: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul copy ann@dtn1:/data/run7 bob@dtn2:/archive/    from dtn1 to dtn2
haul copy 'dtn1:/data/*.vdif' dtn2:/archive/ --protection private
haul copy dtn1:run7 dtn2:run7/ --install-remote     machines that have no haul",
    },
    EXIT_STATUS,
];

const PLAN: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul plan /data/run7 URL1 URL2 --shards 64 --out /shared/plan
haul push --plan /shared/plan --shard 3             one shard, by hand
sbatch --array=1-64%8 --wrap 'haul push --plan /shared/plan --shard auto --wait'
seq 64 | parallel -j2 -S n1,n2 --joblog /shared/plan/log --resume-failed \\
    haul push --plan /shared/plan --shard {} --wait    again until it ends with 0; not after a 2
haul plan --again /shared/plan --again /shared/plan-2 --shards 16 --out /shared/plan-3
haul plan /shared/plan --simulate nodes=8,nic=25Gbit,server-nic=100Gbit,server-disk=6G",
    },
    Section {
        title: "Fleet, for --simulate: words with a comma between",
        lines: "\
nodes=N                     machines that send; the only word that must be there
runs=N                      runs at a time on each; 1
servers=N                   machines that receive; as many as the plan has URLs
nic, server-nic=RATE        network card of each node, of each server: 25Gbit, 3G
disk, server-disk=RATE      disk of each
nic.2, server-disk.1=RATE   of a single one
core=RATE                   link between nodes and servers
shared-source=RATE          file system that all nodes read
shared-target=RATE          file system that all servers write
run=RATE, files=N           most bytes and files a second of one run; any, 20000
start=TIME                  of a run, until its first byte; 1s
mtbf=TIME                   mean time between failures of a node: 30d; none fails
requeue, repair=TIME        until its shards go on, until it takes others; 2m, 10m
seed=N, mtu=N               of the failures, 1; bytes of a packet, 1500",
    },
    Section {
        title: "Exit status",
        lines: "\
0  all that is meant is in a shard
1  a directory could not be read: its shard makes it, and nothing below it is planned; or the plan
   is made, and could not be simulated
2  nothing could start: no directory, a plan that is there already, wrong arguments",
    },
];

const REPORT: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul report /shared/plan                     while the shards run, or after
haul report /shared/plan --html fleet.html   with a chart for each machine
haul report /shared/plan --json | tail -n1   the sums, for programs",
    },
    Section {
        title: "Exit status",
        lines: "\
0  all shards are done
1  a shard failed, was stopped, runs, or has not begun; the page could not be written
2  the plan or its reports cannot be read, or wrong arguments",
    },
];

const LS: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul ls URL                             what the served directory holds
haul ls URL/run7 -R                     all below run7
haul ls ann@dtn1:/data                  by ssh, of a machine that has haul
haul ls URL/run7 --json | jq -r 'select(.kind == \"file\").path'",
    },
    Section {
        title: "Exit status",
        lines: "\
0  all is listed
1  a directory could not be looked into, or the connection was lost
2  nothing could start: no connection, no right, nothing of that name",
    },
    TOKEN_ENVIRONMENT,
];

const VERIFY: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul verify run7.b3                     what lies beside run7.b3
haul verify run7.b3 /data               what lies below /data
haul verify run7.b3 /data --extra       and nothing else may lie there
haul verify .scan.vdif.haul-journal     what a transfer that broke off has left
haul verify run7.b3 /data --json | jq -r 'select(.event == \"file\" and .status != \"ok\").path'",
    },
    Section {
        title: "Exit status",
        lines: "\
0  all the same
1  something differs, is missing or cannot be read; with --extra also: is not in the manifest
2  nothing could start: no manifest, a line of it that is none, no directory",
    },
];

const TOKEN: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul token new --read --expires 7d --host dtn1.example.org
haul token new --write --root incoming --single-use --label 'for Ann'
haul token list
haul token revoke 1a2b3c4d",
    },
    PLAIN_EXIT_STATUS,
    STATE_ENVIRONMENT,
];

const TUNE: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul tune                               what to change here, and why
haul tune --role test-host --rtt 80ms   for one fast stream over a long path
haul tune --explain tcp-buffers         all about one check
haul tune --dry-run                     the changes as a script
sudo haul tune --apply                  make them, also for the next boot
sudo haul tune --apply=rings,mtu        only these
sudo haul tune --undo                   everything as it was
haul tune haul://TOKEN@dtn2             the peer and the path too
sudo haul tune --apply --measure URL    each change measured, and kept if it helps",
    },
    Section {
        title: "Exit status",
        lines: "\
0  audited, changed or set back
1  a change failed, and all of the run were set back; or something could not be set back
2  nothing could start: wrong arguments, no right",
    },
    TOKEN_ENVIRONMENT,
];

const BENCH_EXIT_STATUS: Section = Section {
    title: "Exit status",
    lines: "\
0  measured; what an engine refused is said in its row
1  broke off, or nothing at all could be measured
2  nothing could start: wrong arguments, no directory",
};

const BENCH: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul bench engines                      every pair of engines, in about three minutes
haul bench engines --html engines.html  with charts
haul bench files --dir /data            the studies' tables, on the disk of /data
sudo haul bench files --small           20,000 small files beside tar and rsync
haul bench chooser --dir /data          is haul's choice the best there?
haul bench protection                   clear, safe and private beside the bare cipher
sudo haul bench studies --report studies.html
                                        all studies in ten minutes, as one page
sudo haul bench media --dir /data       a crowd of viewers, by each way of sending",
    },
    BENCH_EXIT_STATUS,
];

const BENCH_ENGINES: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul bench engines --quick              a look, in seconds
haul bench engines --html engines.html  with charts
haul bench engines --dir /data --send-engine sendfile,io-uring
haul bench engines --only offsets       a table of a study alone
haul bench engines --full --budget 2h   all pairs with all block sizes and streams
haul bench engines URL --target b.bin   to a server elsewhere, into its file b.bin
haul bench engines --json | jq -r 'select(.table == \"cold\") | [.send_engine, .gb_per_s.median]'",
    },
    BENCH_EXIT_STATUS,
    TOKEN_ENVIRONMENT,
];

const BENCH_FILES: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul bench files --dir /data            the table, and 10 GB sent and recorded
haul bench files --dir /data --only times
haul bench files --dir /data --size 100G --html files.html
sudo haul bench files --small --report small.html
                                        small files: small.html and small.json
haul bench files --small --file-systems own --dir /data
haul bench files --small --json | jq -r 'select(.event == \"target\") | [.needs, .found]'",
    },
    BENCH_EXIT_STATUS,
];

const BENCH_CHOOSER: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul bench chooser                      all file systems that this host can make
haul bench chooser --dir /data --sizes 1G,beyond --streams 1
haul bench chooser --budget 10m --json",
    },
    BENCH_EXIT_STATUS,
];

const BENCH_PROTECTION: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul bench protection                   in a minute or two
haul bench protection --streams 1 --size 4G --html protection.html
haul bench protection --json | jq -r 'select(.event == \"target\") | [.needs, .found, .allowed]'",
    },
    BENCH_EXIT_STATUS,
];

const PROBE: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul probe disk /data                   how fast the disk of /data is, over time
haul probe net URL                      the network, memory to memory
haul probe path scan.vdif URL/archive/  which stage would limit, from disk to disk",
    },
    PROBE_EXIT_STATUS,
    TOKEN_ENVIRONMENT,
];

const PROBE_EXIT_STATUS: Section = Section {
    title: "Exit status",
    lines: "\
0  measured; what could not be is named
1  broke off: interrupted, or the connection was lost
2  nothing could start: wrong arguments, no connection, no right",
};

const PROBE_NET: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul probe net URL                      1, 2, 4 and 8 streams to the server
haul probe net URL --reverse --html net.html
haul probe net URL --bidir --streams 4 --time 30s
haul probe net URL --congestion cubic,bbr --streams 1
haul probe net URL --udp --rate 8Gbit   loss and jitter of datagrams
haul probe net URL --json | jq -r 'select(.event == \"round\") | [.streams, .gbit_per_s]'",
    },
    PROBE_EXIT_STATUS,
    TOKEN_ENVIRONMENT,
];

const PROBE_DISK: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul probe disk /data                   some minutes, with a file larger than memory
haul probe disk /data --quick           a look, in half a minute
haul probe disk /data --html disk.html  with charts of rates and delays over time
haul probe disk /data --time 10m --size 500G --rounds 0
haul probe disk /data --methods io-uring --block-sizes 1M --depths 1,8,64
haul probe disk /data --json | jq -r 'select(.event == \"verdict\").sentences[0]'",
    },
    BENCH_EXIT_STATUS,
];

const BENCH_TUNING: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
sudo haul bench tuning                  both paths, in about five minutes
sudo haul bench tuning --html tuning.html
sudo haul bench tuning --only wan --rate 500Mbit --rtt 50ms --rounds 3",
    },
    BENCH_EXIT_STATUS,
];

const BENCH_MEDIA: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
sudo haul bench media                   all of the study, in about ten minutes
sudo haul bench media --html media.html
sudo haul bench media --only crowd --methods one-copy,normal --rounds 3
sudo haul bench media --paper --dir /data
                                        the study's own figures: hours, and 9 GB
haul bench media --against http://host/films/ --rate 1.5M
                                        the same crowd at any other server",
    },
    BENCH_EXIT_STATUS,
];

const BENCH_STUDIES: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
sudo haul bench studies --report studies.html
                                        all of it: studies.html and studies.json
haul bench studies --only engines,files --dir /data
sudo haul bench studies --paper --dir /data --report paper.html
haul bench studies --quick --json | jq -r 'select(.event == \"figure\") | [.figure, .verdict]'",
    },
    BENCH_EXIT_STATUS,
];

const PROBE_PATH: &[Section] = &[
    Section {
        title: "Examples",
        lines: "\
haul probe path scan.vdif URL/archive/  what limits, and what a change would bring
haul probe path run7 URL/ --html path.html
haul probe path run7 URL/ --time 30s --rounds 3 --streams 4
haul probe path run7 URL/ --json | jq -r 'select(.event == \"verdict\").verdict'",
    },
    PROBE_EXIT_STATUS,
    TOKEN_ENVIRONMENT,
];

const TOKEN_PART: &[Section] = &[PLAIN_EXIT_STATUS, STATE_ENVIRONMENT];

/// The sections of a command, named with its parents: `haul`, `haul-push`, `haul-token-new`.
#[must_use]
pub fn sections(command: &str) -> &'static [Section] {
    match command {
        "haul" => ALL,
        "haul-demo" => DEMO,
        "haul-serve" => SERVE,
        "haul-media" => MEDIA,
        "haul-push" => PUSH,
        "haul-pull" => PULL,
        "haul-copy" => COPY,
        "haul-plan" => PLAN,
        "haul-report" => REPORT,
        "haul-ls" => LS,
        "haul-verify" => VERIFY,
        "haul-token" => TOKEN,
        "haul-probe" => PROBE,
        "haul-probe-net" => PROBE_NET,
        "haul-tune" => TUNE,
        "haul-probe-path" => PROBE_PATH,
        "haul-bench" => BENCH,
        "haul-bench-engines" => BENCH_ENGINES,
        "haul-bench-files" => BENCH_FILES,
        "haul-bench-chooser" => BENCH_CHOOSER,
        "haul-bench-protection" => BENCH_PROTECTION,
        "haul-probe-disk" => PROBE_DISK,
        "haul-bench-tuning" => BENCH_TUNING,
        "haul-bench-media" => BENCH_MEDIA,
        "haul-bench-studies" => BENCH_STUDIES,
        _ if command.starts_with("haul-token-") => TOKEN_PART,
        _ => &[],
    }
}

/// Puts each command's sections below its long help.
#[must_use]
pub fn with_examples(command: Command) -> Command {
    let name = command.get_name().to_owned();
    annotated(command, &name)
}

fn annotated(command: Command, name: &str) -> Command {
    let text: Vec<String> = sections(name)
        .iter()
        .map(|section| {
            let lines = section.lines.replace('\n', "\n  ");
            format!("{}:\n  {lines}", section.title)
        })
        .collect();
    let children: Vec<String> =
        command.get_subcommands().map(|child| child.get_name().to_owned()).collect();
    let command =
        if text.is_empty() { command } else { command.after_long_help(text.join("\n\n")) };
    children.into_iter().fold(command, |command, child| {
        let full_name = format!("{name}-{child}");
        command.mut_subcommand(child, |child| annotated(child, &full_name))
    })
}
