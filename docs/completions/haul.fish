# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_haul_global_optspecs
    string join \n h/help V/version
end

function __fish_haul_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_haul_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_haul_using_subcommand
    set -l cmd (__fish_haul_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c haul -n "__fish_haul_needs_command" -s h -l help -d 'Print help'
complete -c haul -n "__fish_haul_needs_command" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_needs_command" -f -a "demo" -d 'Shows haul in a minute: moves a file, kills the transfer, resumes and verifies it'
complete -c haul -n "__fish_haul_needs_command" -f -a "serve" -d 'Serves a directory: receives into it and sends from it'
complete -c haul -n "__fish_haul_needs_command" -f -a "push" -d 'Sends files and directories to a server'
complete -c haul -n "__fish_haul_needs_command" -f -a "pull" -d 'Fetches files and directories from a server'
complete -c haul -n "__fish_haul_needs_command" -f -a "copy" -d 'Copies between two machines that ssh reaches: the bytes go from one to the other'
complete -c haul -n "__fish_haul_needs_command" -f -a "plan" -d 'Cuts a directory into shards that many machines move'
complete -c haul -n "__fish_haul_needs_command" -f -a "report" -d 'Adds up what the runs of a plan have done, and says how to finish it'
complete -c haul -n "__fish_haul_needs_command" -f -a "ls" -d 'Lists what a server has, or a machine that ssh reaches'
complete -c haul -n "__fish_haul_needs_command" -f -a "verify" -d 'Reads files again from their disks and compares them with a manifest'
complete -c haul -n "__fish_haul_needs_command" -f -a "media" -d 'Serves films and recordings over HTTP to players, browsers and ffmpeg'
complete -c haul -n "__fish_haul_needs_command" -f -a "token" -d 'Makes, lists and revokes the tokens that a server accepts'
complete -c haul -n "__fish_haul_needs_command" -f -a "probe" -d 'Measures what disks, network and path could carry, before anything is moved'
complete -c haul -n "__fish_haul_needs_command" -f -a "tune" -d 'Audits this host as a data transfer node, and tunes it, with a way back'
complete -c haul -n "__fish_haul_needs_command" -f -a "bench" -d 'Measures this host\'s engines and haul\'s choices, and repeats studies'
complete -c haul -n "__fish_haul_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c haul -n "__fish_haul_using_subcommand demo" -l size -d 'Bytes of the file, like 1G; without it 1G, or less where the disk is small or slow' -r
complete -c haul -n "__fish_haul_using_subcommand demo" -l dir -d 'Parent of the fresh directory; without it the one for temporary files (TMPDIR)' -r -F
complete -c haul -n "__fish_haul_using_subcommand demo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand demo" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand serve" -l listen -d 'The address and port to listen on, or one of the two; port 0 takes a free one' -r
complete -c haul -n "__fish_haul_using_subcommand serve" -l port-range -d 'Ports of which a free one is taken, such as 50000-50100' -r
complete -c haul -n "__fish_haul_using_subcommand serve" -l advertise -d 'Host in the printed URL; without it this host\'s name where it leads here, else an address' -r
complete -c haul -n "__fish_haul_using_subcommand serve" -l protection-min -d 'The least protection of the data that a client may ask for' -r -f -a "clear\t'A digest that catches accidents; anyone on the path can read and change the data'
safe\t'A keyed MAC of each span: nobody on the path can change, swap or replay a byte unseen'
private\t'TLS 1.3 for the data too: nobody on the path can read a byte either'"
complete -c haul -n "__fish_haul_using_subcommand serve" -l rekey-after -d 'Bytes after which a private stream is replaced by another, with another key; at most 126G' -r
complete -c haul -n "__fish_haul_using_subcommand serve" -l max-sessions -d 'Sessions at a time; more are refused' -r
complete -c haul -n "__fish_haul_using_subcommand serve" -l max-probes -d 'Probes (`haul probe net`) at a time, counted among the sessions; 0 refuses them' -r
complete -c haul -n "__fish_haul_using_subcommand serve" -l max-streams -d 'Data streams of one session' -r
complete -c haul -n "__fish_haul_using_subcommand serve" -l dscp -d 'Class that the packets of this side ask for: a number below 64, or a name such as af11, le' -r
complete -c haul -n "__fish_haul_using_subcommand serve" -l handshake-timeout -d 'How long a connection may take to show who it is' -r
complete -c haul -n "__fish_haul_using_subcommand serve" -l state -d 'The directory of what haul keeps: keys, tokens, what --measure found (mode 0700)' -r -F
complete -c haul -n "__fish_haul_using_subcommand serve" -l once -d 'End after one session'
complete -c haul -n "__fish_haul_using_subcommand serve" -l over-ssh -d 'Serve one copy of user@host:path, of which ssh tells: for sshd_config and authorized_keys'
complete -c haul -n "__fish_haul_using_subcommand serve" -l read-only -d 'Refuse to receive, whatever a token allows'
complete -c haul -n "__fish_haul_using_subcommand serve" -l fabric -d 'Let data streams go by RDMA endpoints (libfabric), where a client asks for it'
complete -c haul -n "__fish_haul_using_subcommand serve" -l reflect-flow-label -d 'Give back the flow label that a client\'s packets have (IPv6), so that its --scitag marks what it pulls'
complete -c haul -n "__fish_haul_using_subcommand serve" -s v -l verbose -d 'Print a line for each file too; --json always has them'
complete -c haul -n "__fish_haul_using_subcommand serve" -l json -d 'Print one JSON object a line: first {"event":"listening","url":...,"urls":[...]}'
complete -c haul -n "__fish_haul_using_subcommand serve" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand serve" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand push" -l plan -d 'Move one shard of the plan in this directory, made by `haul plan`' -r -F
complete -c haul -n "__fish_haul_using_subcommand push" -l shard -d 'Number of the shard, from 1: K, K/N, or auto, to take it from the scheduler as --part does' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l bwlimit -d 'The most bytes a second of all streams together: 500M, or in bits 10Gbit' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l streams -d 'Data connections; without it chosen from processors, round-trip time and sizes' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l span-size -d 'Bytes that are sent, verified and made durable as one, a power of two like 8M' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l protection -d 'How the data is protected on its way' -r -f -a "clear\t'A digest that catches accidents; anyone on the path can read and change the data'
safe\t'A keyed MAC of each span: nobody on the path can change, swap or replay a byte unseen'
private\t'TLS 1.3 for the data too: nobody on the path can read a byte either'"
complete -c haul -n "__fish_haul_using_subcommand push" -l rekey-after -d 'Bytes after which a private stream is replaced by another, with another key; at most 126G' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l digest -d 'Digest that finds accidents under --protection clear or private; without it crc32c' -r -f -a "none\t'Nothing is verified, and the report says so'
crc32c\t'CRC-32C (Castagnoli)'
xxh3-128\t'XXH3, 128 bits'"
complete -c haul -n "__fish_haul_using_subcommand push" -l send-engine -d 'The engine that reads and sends' -r -f -a "auto\t'chosen by what is found; the report says why'
read-write\t'read into a buffer, write it out; works everywhere'
mmap\t'study: send from and receive into a mapping of the file'
sendfile\t'page cache to socket inside the kernel'
splice\t'file to socket and socket to file through a pipe inside the kernel'
direct\t'O_DIRECT by a thread that runs beside the stream; past the page cache'
io-uring\t'O_DIRECT at depth by io_uring; past the page cache'
zerocopy-send\t'study: O_DIRECT reads, sent by MSG_ZEROCOPY; for network cards, not for loopback'
tls\t'TLS 1.3 in this process, for `--protection private` where the kernel has none'
fabric\t'RDMA: registered pages of the page cache, to registered memory'"
complete -c haul -n "__fish_haul_using_subcommand push" -l receive-engine -d 'The engine that receives and writes' -r -f -a "auto\t'chosen by what is found; the report says why'
read-write\t'read into a buffer, write it out; works everywhere'
mmap\t'study: send from and receive into a mapping of the file'
splice\t'file to socket and socket to file through a pipe inside the kernel'
direct\t'O_DIRECT by a thread that runs beside the stream; past the page cache'
io-uring\t'O_DIRECT at depth by io_uring; past the page cache'
dontcache\t'buffered writes that leave the page cache at once (Linux 6.14)'
zerocopy-receive\t'study: the socket\'s pages, mapped and written; for network cards with header split'
discard\t'throw away what arrives, for null:'
tls\t'TLS 1.3 in this process, for `--protection private` where the kernel has none'
fabric\t'RDMA: registered pages of the page cache, to registered memory'"
complete -c haul -n "__fish_haul_using_subcommand push" -l fabric -d 'Send data by RDMA endpoints (libfabric): a card, or memory that both share on one host' -r -f -a "auto\t''
verbs\t''
efa\t''
cxi\t''
shm\t''
tcp\t''"
complete -c haul -n "__fish_haul_using_subcommand push" -l signal -d 'Another signal that ends the run as SIGTERM does: the same command resumes it' -r -f -a "USR1\t''
USR2\t''
HUP\t''
QUIT\t''
ALRM\t''
XCPU\t''"
complete -c haul -n "__fish_haul_using_subcommand push" -l retry-for -d 'How long to try to get back to a server that went away' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l stall-timeout -d 'A stream that brought nothing for this long is opened again' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l manifest -d 'Write a BLAKE3 line for each file, as b3sum does, on this side' -r -F
complete -c haul -n "__fish_haul_using_subcommand push" -l token-file -d 'Read the token from a file, not from the URL or HAUL_TOKEN' -r -F
complete -c haul -n "__fish_haul_using_subcommand push" -l bind -d 'Addresses or interfaces of this host that connections come from, such as eth0,eth1' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l dscp -d 'Class that the packets ask for: a number below 64, or a name such as af11, cs1, le' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l scitag -d 'Numbers of the experiment and the activity that data is of (scitags.org), such as 2.14' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l firefly -d 'Collectors that hear of each stream, too; without a port 10514' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l ssh -d 'The program that reaches user@host:path, with its options, such as "ssh -p 2222"' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l remote-haul -d 'haul on the machine of user@host:path; subsystem:NAME for a Subsystem of its sshd' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l port-range -d 'Ports of which the side that listens takes one, such as 50000-50100' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l proxy -d 'Go by a proxy: socks5://HOST, socks5h://HOST, http://USER:PASSWORD@HOST:PORT, or none' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l include -d 'Take what fits, as --exclude says' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l exclude -d 'Leave out what fits: *.tmp, /top/*.log, cache/' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l files-from -d 'Move only the names that this file lists, one a line, below the one source; - is standard input' -r -F
complete -c haul -n "__fish_haul_using_subcommand push" -l part -d 'Move only one part of the files, by their names: 2/16 is the second of sixteen' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l min-size -d 'Leave out smaller files' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l max-size -d 'Leave out larger files' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l min-age -d 'Leave out files changed later than so long ago (2h, 7d), or than a date (2026-01-31)' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l max-age -d 'Leave out files changed earlier than so long ago (2h, 7d), or than a date (2026-01-31)' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l on-conflict -d 'Fate of a file whose name is taken at the target' -r -f -a "skip-same\t'A file that is the same by size and time stays, one that differs is replaced'
replace\t'Even what is the same is replaced'
fail\t'A file that differs stays, and the new one fails'
keep-both\t'A file that differs stays, and the new one is stored as NAME.1, NAME.2, ...'"
complete -c haul -n "__fish_haul_using_subcommand push" -l max-delete -d 'Remove nothing if more than so many names would go' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l preserve -d 'Attributes that arrive with each file: mode, mtime, owner, group, xattrs, acls, all or none' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l watch-for -d 'End --watch after this long without anything new' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l idle -d 'Time without a write after which --follow and --watch take a file as complete' -r
complete -c haul -n "__fish_haul_using_subcommand push" -l wait -d 'Wait for a server that cannot be reached at first, too, for as long as --retry-for says'
complete -c haul -n "__fish_haul_using_subcommand push" -l verify-target -d 'Read each file back from the target\'s disk before it gets its name'
complete -c haul -n "__fish_haul_using_subcommand push" -l recheck -d 'Read back what an earlier run left at the target before it is believed'
complete -c haul -n "__fish_haul_using_subcommand push" -l install-remote -d 'Copy this haul to the machine of user@host:path where it has none'
complete -c haul -n "__fish_haul_using_subcommand push" -l reverse -d 'Have the machine of user@host:path make the connections'
complete -c haul -n "__fish_haul_using_subcommand push" -l through-ssh -d 'Send the data through ssh itself, which is slow'
complete -c haul -n "__fish_haul_using_subcommand push" -l json -d 'Print one JSON object a line: session, progress, connection, file, fallback, stall, resume, rereading, lag, left_out, explained, error, waiting, report'
complete -c haul -n "__fish_haul_using_subcommand push" -l report -d 'Print the whole report: engines, wire, costs and stages'
complete -c haul -n "__fish_haul_using_subcommand push" -s q -l quiet -d 'Print nothing but what failed (with --json: everything but progress)'
complete -c haul -n "__fish_haul_using_subcommand push" -l from0 -d 'The names of --files-from end with a zero byte, not with a line feed'
complete -c haul -n "__fish_haul_using_subcommand push" -l checksum-compare -d 'Tell whether a file is the same by its bytes, not by size and time'
complete -c haul -n "__fish_haul_using_subcommand push" -l delete -d 'Remove from the target what the source directories do not have, after all else succeeded'
complete -c haul -n "__fish_haul_using_subcommand push" -s n -l dry-run -d 'Say what would be copied, replaced and removed, and do nothing'
complete -c haul -n "__fish_haul_using_subcommand push" -l explain -d 'Say by which facts each side chose its engine, what else there was, and the choice'
complete -c haul -n "__fish_haul_using_subcommand push" -l preflight -d 'Look at room, rights, names, limits, the port, clocks and tuning on both sides; move nothing'
complete -c haul -n "__fish_haul_using_subcommand push" -l move -d 'Remove each source file once it is durable at the target, and directories left empty'
complete -c haul -n "__fish_haul_using_subcommand push" -l follow -d 'Send each file while it is written, until its writer closes or renames it, or it is idle'
complete -c haul -n "__fish_haul_using_subcommand push" -l append-only -d 'Trust that a written byte never changes: nothing is read again at the end of --follow'
complete -c haul -n "__fish_haul_using_subcommand push" -l watch -d 'Send what appears in the source directories too, until Ctrl-C'
complete -c haul -n "__fish_haul_using_subcommand push" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand push" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand pull" -l bwlimit -d 'The most bytes a second of all streams together: 500M, or in bits 10Gbit' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l streams -d 'Data connections; without it chosen from processors, round-trip time and sizes' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l span-size -d 'Bytes that are sent, verified and made durable as one, a power of two like 8M' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l protection -d 'How the data is protected on its way' -r -f -a "clear\t'A digest that catches accidents; anyone on the path can read and change the data'
safe\t'A keyed MAC of each span: nobody on the path can change, swap or replay a byte unseen'
private\t'TLS 1.3 for the data too: nobody on the path can read a byte either'"
complete -c haul -n "__fish_haul_using_subcommand pull" -l rekey-after -d 'Bytes after which a private stream is replaced by another, with another key; at most 126G' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l digest -d 'Digest that finds accidents under --protection clear or private; without it crc32c' -r -f -a "none\t'Nothing is verified, and the report says so'
crc32c\t'CRC-32C (Castagnoli)'
xxh3-128\t'XXH3, 128 bits'"
complete -c haul -n "__fish_haul_using_subcommand pull" -l send-engine -d 'The engine that reads and sends' -r -f -a "auto\t'chosen by what is found; the report says why'
read-write\t'read into a buffer, write it out; works everywhere'
mmap\t'study: send from and receive into a mapping of the file'
sendfile\t'page cache to socket inside the kernel'
splice\t'file to socket and socket to file through a pipe inside the kernel'
direct\t'O_DIRECT by a thread that runs beside the stream; past the page cache'
io-uring\t'O_DIRECT at depth by io_uring; past the page cache'
zerocopy-send\t'study: O_DIRECT reads, sent by MSG_ZEROCOPY; for network cards, not for loopback'
tls\t'TLS 1.3 in this process, for `--protection private` where the kernel has none'
fabric\t'RDMA: registered pages of the page cache, to registered memory'"
complete -c haul -n "__fish_haul_using_subcommand pull" -l receive-engine -d 'The engine that receives and writes' -r -f -a "auto\t'chosen by what is found; the report says why'
read-write\t'read into a buffer, write it out; works everywhere'
mmap\t'study: send from and receive into a mapping of the file'
splice\t'file to socket and socket to file through a pipe inside the kernel'
direct\t'O_DIRECT by a thread that runs beside the stream; past the page cache'
io-uring\t'O_DIRECT at depth by io_uring; past the page cache'
dontcache\t'buffered writes that leave the page cache at once (Linux 6.14)'
zerocopy-receive\t'study: the socket\'s pages, mapped and written; for network cards with header split'
discard\t'throw away what arrives, for null:'
tls\t'TLS 1.3 in this process, for `--protection private` where the kernel has none'
fabric\t'RDMA: registered pages of the page cache, to registered memory'"
complete -c haul -n "__fish_haul_using_subcommand pull" -l fabric -d 'Send data by RDMA endpoints (libfabric): a card, or memory that both share on one host' -r -f -a "auto\t''
verbs\t''
efa\t''
cxi\t''
shm\t''
tcp\t''"
complete -c haul -n "__fish_haul_using_subcommand pull" -l signal -d 'Another signal that ends the run as SIGTERM does: the same command resumes it' -r -f -a "USR1\t''
USR2\t''
HUP\t''
QUIT\t''
ALRM\t''
XCPU\t''"
complete -c haul -n "__fish_haul_using_subcommand pull" -l retry-for -d 'How long to try to get back to a server that went away' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l stall-timeout -d 'A stream that brought nothing for this long is opened again' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l manifest -d 'Write a BLAKE3 line for each file, as b3sum does, on this side' -r -F
complete -c haul -n "__fish_haul_using_subcommand pull" -l token-file -d 'Read the token from a file, not from the URL or HAUL_TOKEN' -r -F
complete -c haul -n "__fish_haul_using_subcommand pull" -l bind -d 'Addresses or interfaces of this host that connections come from, such as eth0,eth1' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l dscp -d 'Class that the packets ask for: a number below 64, or a name such as af11, cs1, le' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l scitag -d 'Numbers of the experiment and the activity that data is of (scitags.org), such as 2.14' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l firefly -d 'Collectors that hear of each stream, too; without a port 10514' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l ssh -d 'The program that reaches user@host:path, with its options, such as "ssh -p 2222"' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l remote-haul -d 'haul on the machine of user@host:path; subsystem:NAME for a Subsystem of its sshd' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l port-range -d 'Ports of which the side that listens takes one, such as 50000-50100' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l proxy -d 'Go by a proxy: socks5://HOST, socks5h://HOST, http://USER:PASSWORD@HOST:PORT, or none' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l include -d 'Take what fits, as --exclude says' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l exclude -d 'Leave out what fits: *.tmp, /top/*.log, cache/' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l files-from -d 'Move only the names that this file lists, one a line, below the one source; - is standard input' -r -F
complete -c haul -n "__fish_haul_using_subcommand pull" -l part -d 'Move only one part of the files, by their names: 2/16 is the second of sixteen' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l min-size -d 'Leave out smaller files' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l max-size -d 'Leave out larger files' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l min-age -d 'Leave out files changed later than so long ago (2h, 7d), or than a date (2026-01-31)' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l max-age -d 'Leave out files changed earlier than so long ago (2h, 7d), or than a date (2026-01-31)' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l on-conflict -d 'Fate of a file whose name is taken at the target' -r -f -a "skip-same\t'A file that is the same by size and time stays, one that differs is replaced'
replace\t'Even what is the same is replaced'
fail\t'A file that differs stays, and the new one fails'
keep-both\t'A file that differs stays, and the new one is stored as NAME.1, NAME.2, ...'"
complete -c haul -n "__fish_haul_using_subcommand pull" -l max-delete -d 'Remove nothing if more than so many names would go' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l preserve -d 'Attributes that arrive with each file: mode, mtime, owner, group, xattrs, acls, all or none' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l watch-for -d 'End --watch after this long without anything new' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l idle -d 'Time without a write after which --follow and --watch take a file as complete' -r
complete -c haul -n "__fish_haul_using_subcommand pull" -l wait -d 'Wait for a server that cannot be reached at first, too, for as long as --retry-for says'
complete -c haul -n "__fish_haul_using_subcommand pull" -l verify-target -d 'Read each file back from the target\'s disk before it gets its name'
complete -c haul -n "__fish_haul_using_subcommand pull" -l recheck -d 'Read back what an earlier run left at the target before it is believed'
complete -c haul -n "__fish_haul_using_subcommand pull" -l install-remote -d 'Copy this haul to the machine of user@host:path where it has none'
complete -c haul -n "__fish_haul_using_subcommand pull" -l reverse -d 'Have the machine of user@host:path make the connections'
complete -c haul -n "__fish_haul_using_subcommand pull" -l through-ssh -d 'Send the data through ssh itself, which is slow'
complete -c haul -n "__fish_haul_using_subcommand pull" -l json -d 'Print one JSON object a line: session, progress, connection, file, fallback, stall, resume, rereading, lag, left_out, explained, error, waiting, report'
complete -c haul -n "__fish_haul_using_subcommand pull" -l report -d 'Print the whole report: engines, wire, costs and stages'
complete -c haul -n "__fish_haul_using_subcommand pull" -s q -l quiet -d 'Print nothing but what failed (with --json: everything but progress)'
complete -c haul -n "__fish_haul_using_subcommand pull" -l from0 -d 'The names of --files-from end with a zero byte, not with a line feed'
complete -c haul -n "__fish_haul_using_subcommand pull" -l checksum-compare -d 'Tell whether a file is the same by its bytes, not by size and time'
complete -c haul -n "__fish_haul_using_subcommand pull" -l delete -d 'Remove from the target what the source directories do not have, after all else succeeded'
complete -c haul -n "__fish_haul_using_subcommand pull" -s n -l dry-run -d 'Say what would be copied, replaced and removed, and do nothing'
complete -c haul -n "__fish_haul_using_subcommand pull" -l explain -d 'Say by which facts each side chose its engine, what else there was, and the choice'
complete -c haul -n "__fish_haul_using_subcommand pull" -l preflight -d 'Look at room, rights, names, limits, the port, clocks and tuning on both sides; move nothing'
complete -c haul -n "__fish_haul_using_subcommand pull" -l move -d 'Remove each source file once it is durable at the target, and directories left empty'
complete -c haul -n "__fish_haul_using_subcommand pull" -l follow -d 'Send each file while it is written, until its writer closes or renames it, or it is idle'
complete -c haul -n "__fish_haul_using_subcommand pull" -l append-only -d 'Trust that a written byte never changes: nothing is read again at the end of --follow'
complete -c haul -n "__fish_haul_using_subcommand pull" -l watch -d 'Send what appears in the source directories too, until Ctrl-C'
complete -c haul -n "__fish_haul_using_subcommand pull" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand pull" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand copy" -l bwlimit -d 'The most bytes a second of all streams together: 500M, or in bits 10Gbit' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l streams -d 'Data connections; without it chosen from processors, round-trip time and sizes' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l span-size -d 'Bytes that are sent, verified and made durable as one, a power of two like 8M' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l protection -d 'How the data is protected on its way' -r -f -a "clear\t'A digest that catches accidents; anyone on the path can read and change the data'
safe\t'A keyed MAC of each span: nobody on the path can change, swap or replay a byte unseen'
private\t'TLS 1.3 for the data too: nobody on the path can read a byte either'"
complete -c haul -n "__fish_haul_using_subcommand copy" -l rekey-after -d 'Bytes after which a private stream is replaced by another, with another key; at most 126G' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l digest -d 'Digest that finds accidents under --protection clear or private; without it crc32c' -r -f -a "none\t'Nothing is verified, and the report says so'
crc32c\t'CRC-32C (Castagnoli)'
xxh3-128\t'XXH3, 128 bits'"
complete -c haul -n "__fish_haul_using_subcommand copy" -l send-engine -d 'The engine that reads and sends' -r -f -a "auto\t'chosen by what is found; the report says why'
read-write\t'read into a buffer, write it out; works everywhere'
mmap\t'study: send from and receive into a mapping of the file'
sendfile\t'page cache to socket inside the kernel'
splice\t'file to socket and socket to file through a pipe inside the kernel'
direct\t'O_DIRECT by a thread that runs beside the stream; past the page cache'
io-uring\t'O_DIRECT at depth by io_uring; past the page cache'
zerocopy-send\t'study: O_DIRECT reads, sent by MSG_ZEROCOPY; for network cards, not for loopback'
tls\t'TLS 1.3 in this process, for `--protection private` where the kernel has none'
fabric\t'RDMA: registered pages of the page cache, to registered memory'"
complete -c haul -n "__fish_haul_using_subcommand copy" -l receive-engine -d 'The engine that receives and writes' -r -f -a "auto\t'chosen by what is found; the report says why'
read-write\t'read into a buffer, write it out; works everywhere'
mmap\t'study: send from and receive into a mapping of the file'
splice\t'file to socket and socket to file through a pipe inside the kernel'
direct\t'O_DIRECT by a thread that runs beside the stream; past the page cache'
io-uring\t'O_DIRECT at depth by io_uring; past the page cache'
dontcache\t'buffered writes that leave the page cache at once (Linux 6.14)'
zerocopy-receive\t'study: the socket\'s pages, mapped and written; for network cards with header split'
discard\t'throw away what arrives, for null:'
tls\t'TLS 1.3 in this process, for `--protection private` where the kernel has none'
fabric\t'RDMA: registered pages of the page cache, to registered memory'"
complete -c haul -n "__fish_haul_using_subcommand copy" -l fabric -d 'Send data by RDMA endpoints (libfabric): a card, or memory that both share on one host' -r -f -a "auto\t''
verbs\t''
efa\t''
cxi\t''
shm\t''
tcp\t''"
complete -c haul -n "__fish_haul_using_subcommand copy" -l signal -d 'Another signal that ends the run as SIGTERM does: the same command resumes it' -r -f -a "USR1\t''
USR2\t''
HUP\t''
QUIT\t''
ALRM\t''
XCPU\t''"
complete -c haul -n "__fish_haul_using_subcommand copy" -l retry-for -d 'How long to try to get back to a server that went away' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l stall-timeout -d 'A stream that brought nothing for this long is opened again' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l manifest -d 'Write a BLAKE3 line for each file, as b3sum does, on this side' -r -F
complete -c haul -n "__fish_haul_using_subcommand copy" -l token-file -d 'Read the token from a file, not from the URL or HAUL_TOKEN' -r -F
complete -c haul -n "__fish_haul_using_subcommand copy" -l bind -d 'Addresses or interfaces of this host that connections come from, such as eth0,eth1' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l dscp -d 'Class that the packets ask for: a number below 64, or a name such as af11, cs1, le' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l scitag -d 'Numbers of the experiment and the activity that data is of (scitags.org), such as 2.14' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l firefly -d 'Collectors that hear of each stream, too; without a port 10514' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l ssh -d 'The program that reaches user@host:path, with its options, such as "ssh -p 2222"' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l remote-haul -d 'haul on the machine of user@host:path; subsystem:NAME for a Subsystem of its sshd' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l port-range -d 'Ports of which the side that listens takes one, such as 50000-50100' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l proxy -d 'Go by a proxy: socks5://HOST, socks5h://HOST, http://USER:PASSWORD@HOST:PORT, or none' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l include -d 'Take what fits, as --exclude says' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l exclude -d 'Leave out what fits: *.tmp, /top/*.log, cache/' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l files-from -d 'Move only the names that this file lists, one a line, below the one source; - is standard input' -r -F
complete -c haul -n "__fish_haul_using_subcommand copy" -l part -d 'Move only one part of the files, by their names: 2/16 is the second of sixteen' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l min-size -d 'Leave out smaller files' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l max-size -d 'Leave out larger files' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l min-age -d 'Leave out files changed later than so long ago (2h, 7d), or than a date (2026-01-31)' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l max-age -d 'Leave out files changed earlier than so long ago (2h, 7d), or than a date (2026-01-31)' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l on-conflict -d 'Fate of a file whose name is taken at the target' -r -f -a "skip-same\t'A file that is the same by size and time stays, one that differs is replaced'
replace\t'Even what is the same is replaced'
fail\t'A file that differs stays, and the new one fails'
keep-both\t'A file that differs stays, and the new one is stored as NAME.1, NAME.2, ...'"
complete -c haul -n "__fish_haul_using_subcommand copy" -l max-delete -d 'Remove nothing if more than so many names would go' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l preserve -d 'Attributes that arrive with each file: mode, mtime, owner, group, xattrs, acls, all or none' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l watch-for -d 'End --watch after this long without anything new' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l idle -d 'Time without a write after which --follow and --watch take a file as complete' -r
complete -c haul -n "__fish_haul_using_subcommand copy" -l wait -d 'Wait for a server that cannot be reached at first, too, for as long as --retry-for says'
complete -c haul -n "__fish_haul_using_subcommand copy" -l verify-target -d 'Read each file back from the target\'s disk before it gets its name'
complete -c haul -n "__fish_haul_using_subcommand copy" -l recheck -d 'Read back what an earlier run left at the target before it is believed'
complete -c haul -n "__fish_haul_using_subcommand copy" -l install-remote -d 'Copy this haul to the machine of user@host:path where it has none'
complete -c haul -n "__fish_haul_using_subcommand copy" -l reverse -d 'Have the machine of user@host:path make the connections'
complete -c haul -n "__fish_haul_using_subcommand copy" -l through-ssh -d 'Send the data through ssh itself, which is slow'
complete -c haul -n "__fish_haul_using_subcommand copy" -l json -d 'Print one JSON object a line: session, progress, connection, file, fallback, stall, resume, rereading, lag, left_out, explained, error, waiting, report'
complete -c haul -n "__fish_haul_using_subcommand copy" -l report -d 'Print the whole report: engines, wire, costs and stages'
complete -c haul -n "__fish_haul_using_subcommand copy" -s q -l quiet -d 'Print nothing but what failed (with --json: everything but progress)'
complete -c haul -n "__fish_haul_using_subcommand copy" -l from0 -d 'The names of --files-from end with a zero byte, not with a line feed'
complete -c haul -n "__fish_haul_using_subcommand copy" -l checksum-compare -d 'Tell whether a file is the same by its bytes, not by size and time'
complete -c haul -n "__fish_haul_using_subcommand copy" -l delete -d 'Remove from the target what the source directories do not have, after all else succeeded'
complete -c haul -n "__fish_haul_using_subcommand copy" -s n -l dry-run -d 'Say what would be copied, replaced and removed, and do nothing'
complete -c haul -n "__fish_haul_using_subcommand copy" -l explain -d 'Say by which facts each side chose its engine, what else there was, and the choice'
complete -c haul -n "__fish_haul_using_subcommand copy" -l preflight -d 'Look at room, rights, names, limits, the port, clocks and tuning on both sides; move nothing'
complete -c haul -n "__fish_haul_using_subcommand copy" -l move -d 'Remove each source file once it is durable at the target, and directories left empty'
complete -c haul -n "__fish_haul_using_subcommand copy" -l follow -d 'Send each file while it is written, until its writer closes or renames it, or it is idle'
complete -c haul -n "__fish_haul_using_subcommand copy" -l append-only -d 'Trust that a written byte never changes: nothing is read again at the end of --follow'
complete -c haul -n "__fish_haul_using_subcommand copy" -l watch -d 'Send what appears in the source directories too, until Ctrl-C'
complete -c haul -n "__fish_haul_using_subcommand copy" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand copy" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand plan" -l shards -d 'Number of shards: several for each machine, so that one that is slow holds up little' -r
complete -c haul -n "__fish_haul_using_subcommand plan" -l shard-size -d 'Size of a shard, as 1T, or 1T,500000 for so many files at most (else a million): its runs can begin while the plan is still made' -r
complete -c haul -n "__fish_haul_using_subcommand plan" -l again -d 'Plan only what differs from this earlier plan, or what no run of it has moved' -r -F
complete -c haul -n "__fish_haul_using_subcommand plan" -l out -d 'The directory to write, outside of SOURCE, where every run can read it' -r -F
complete -c haul -n "__fish_haul_using_subcommand plan" -l simulate -d 'Predict the time of the plan on a fleet such as nodes=4,nic=25Gbit, and what limits it' -r
complete -c haul -n "__fish_haul_using_subcommand plan" -l stripe-size -d 'Cut large files at multiples of SIZE, as of the stripes of a parallel file system, for several shards; else those of Lustre are used where the source has them, or 64M' -r
complete -c haul -n "__fish_haul_using_subcommand plan" -l include -d 'Take what fits, as --exclude says' -r
complete -c haul -n "__fish_haul_using_subcommand plan" -l exclude -d 'Leave out what fits: *.tmp, /top/*.log, cache/' -r
complete -c haul -n "__fish_haul_using_subcommand plan" -l shared-target -d 'The URLs lead to one directory, on a file system that their servers share: large files are cut, though several servers write them'
complete -c haul -n "__fish_haul_using_subcommand plan" -l whole-files -d 'Cut no file'
complete -c haul -n "__fish_haul_using_subcommand plan" -l json -d 'Print one JSON object a line: a shard each, then the plan, and last the simulation'
complete -c haul -n "__fish_haul_using_subcommand plan" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand plan" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand report" -l html -d 'Write a page with a chart for the fleet and one for each machine; nothing is fetched' -r -F
complete -c haul -n "__fish_haul_using_subcommand report" -l json -d 'Print one JSON object a line: a shard each, a node each, and last the fleet'
complete -c haul -n "__fish_haul_using_subcommand report" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand report" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand ls" -l token-file -d 'Read the token from a file, not from the URL or HAUL_TOKEN' -r -F
complete -c haul -n "__fish_haul_using_subcommand ls" -l bind -d 'Addresses or interfaces of this host that connections come from, such as eth0,eth1' -r
complete -c haul -n "__fish_haul_using_subcommand ls" -l dscp -d 'Class that the packets ask for: a number below 64, or a name such as af11, cs1, le' -r
complete -c haul -n "__fish_haul_using_subcommand ls" -l scitag -d 'Numbers of the experiment and the activity that data is of (scitags.org), such as 2.14' -r
complete -c haul -n "__fish_haul_using_subcommand ls" -l firefly -d 'Collectors that hear of each stream, too; without a port 10514' -r
complete -c haul -n "__fish_haul_using_subcommand ls" -l ssh -d 'The program that reaches user@host:path, with its options, such as "ssh -p 2222"' -r
complete -c haul -n "__fish_haul_using_subcommand ls" -l remote-haul -d 'haul on the machine of user@host:path; subsystem:NAME for a Subsystem of its sshd' -r
complete -c haul -n "__fish_haul_using_subcommand ls" -l port-range -d 'Ports of which the side that listens takes one, such as 50000-50100' -r
complete -c haul -n "__fish_haul_using_subcommand ls" -l proxy -d 'Go by a proxy: socks5://HOST, socks5h://HOST, http://USER:PASSWORD@HOST:PORT, or none' -r
complete -c haul -n "__fish_haul_using_subcommand ls" -s R -l recursive -d 'All that is below, and not only what the directory itself holds'
complete -c haul -n "__fish_haul_using_subcommand ls" -l install-remote -d 'Copy this haul to the machine of user@host:path where it has none'
complete -c haul -n "__fish_haul_using_subcommand ls" -l reverse -d 'Have the machine of user@host:path make the connections'
complete -c haul -n "__fish_haul_using_subcommand ls" -l through-ssh -d 'Send the data through ssh itself, which is slow'
complete -c haul -n "__fish_haul_using_subcommand ls" -l json -d 'Print one JSON object a line: path, kind, bytes, modified, mode'
complete -c haul -n "__fish_haul_using_subcommand ls" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand ls" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand verify" -l threads -d 'Threads that read; without it as many as there are processors' -r
complete -c haul -n "__fish_haul_using_subcommand verify" -l extra -d 'Name the files below DIR that MANIFEST has no line for, too'
complete -c haul -n "__fish_haul_using_subcommand verify" -l json -d 'Print one JSON object a line: file, progress, error, report'
complete -c haul -n "__fish_haul_using_subcommand verify" -s q -l quiet -d 'Print the files that are not the same, and errors, only (with --json: no progress either)'
complete -c haul -n "__fish_haul_using_subcommand verify" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand verify" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l listen -d 'The address and port to listen on, such as 0.0.0.0:8080; port 0 takes a free one' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l status -d 'Address and port of the dashboard and its figures, or off' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l host-name -d 'A name that requests may be for (their Host field), such as a proxy\'s; may be given again' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l tls-cert -d 'Serve HTTPS with the certificate in this file (PEM; first its own, then those that sign it)' -r -F
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l tls-key -d 'The certificate\'s private key (PEM, not encrypted); without it the file of --tls-cert has it' -r -F
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l method -d 'How bytes get from a file into the network' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l cache -d 'Pages of a film that one viewer alone watches: keep, drop, or auto' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l buffer-memory -d 'Memory for --method direct; it is touched as it is needed' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l disk-depth -d 'Reads that the disk has at a time, in the order of their deadlines' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l rate -d 'The rate of films and sounds: bits a second, such as 2M; auto; or max' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l config -d 'Rates and priorities of paths, limits and other servers (TOML); SIGHUP reads it again' -r -F
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l max-streams -d 'Admit no more paced streams than this' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l network -d 'Rate of the network, such as 10G; kept with what --measure finds' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l margin -d 'Share of what was measured that stays free for what was not, in percent [default: 10]' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l elsewhere -d 'The URL of a server where a stream is sent that finds no place here; may be repeated' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l state -d 'The directory of what haul keeps: keys, tokens, what --measure found (mode 0700)' -r -F
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l period -d 'A paced stream is sent in parts that play this long, each while the one before is played' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l start-up -d 'Time of play that a paced stream gets at once, for its player\'s buffer' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l loops -d 'Event loops, one a thread; without it one for each processor' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l max-connections -d 'Connections at a time; the one that is idle longest makes room for a new one' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l max-connections-per-address -d 'Connections of one address at a time, of IPv6 of one /64: more are closed at once' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l head-time -d 'How long the head of a request may take' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l idle-time -d 'How long a connection may be idle between two requests' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l stall-time -d 'How long a client may take nothing of its answer' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l drain-time -d 'How long answers may take to end after SIGTERM; the rest is cut' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l cors -d 'Whether pages of other sites may read (CORS): on, off, or auto' -r
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l access-log -d 'Write a line for each answer, in the combined log format; - for standard output' -r -F
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l no-readahead -d 'Read nothing ahead of what is sent, neither the kernel nor haul: for comparison'
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l measure -d 'Measure what a stream costs this disk, network and processor, for some seconds, and end'
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l no-index -d 'Show no pages of directories'
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -l json -d 'Print one JSON object a line: first {"event":"listening","url":...,"status":...,"tls":...}'
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -a "capacity" -d 'How many viewers there may be, by what was measured, and what limits them'
complete -c haul -n "__fish_haul_using_subcommand media; and not __fish_seen_subcommand_from capacity help" -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c haul -n "__fish_haul_using_subcommand media; and __fish_seen_subcommand_from capacity" -l rate -d 'Rates of streams, in bits a second' -r
complete -c haul -n "__fish_haul_using_subcommand media; and __fish_seen_subcommand_from capacity" -l method -d 'The method that was measured: one-copy, direct, two-copy or normal' -r
complete -c haul -n "__fish_haul_using_subcommand media; and __fish_seen_subcommand_from capacity" -l period -d 'A period of a stream' -r
complete -c haul -n "__fish_haul_using_subcommand media; and __fish_seen_subcommand_from capacity" -l network -d 'Rate of the network, such as 10G; without it what was measured' -r
complete -c haul -n "__fish_haul_using_subcommand media; and __fish_seen_subcommand_from capacity" -l margin -d 'Share of what was measured that stays free for what was not, in percent [default: 10]' -r
complete -c haul -n "__fish_haul_using_subcommand media; and __fish_seen_subcommand_from capacity" -l state -d 'The directory of what haul keeps: keys, tokens, what --measure found (mode 0700)' -r -F
complete -c haul -n "__fish_haul_using_subcommand media; and __fish_seen_subcommand_from capacity" -l json -d 'Print one JSON object'
complete -c haul -n "__fish_haul_using_subcommand media; and __fish_seen_subcommand_from capacity" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand media; and __fish_seen_subcommand_from capacity" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand media; and __fish_seen_subcommand_from help" -f -a "capacity" -d 'How many viewers there may be, by what was measured, and what limits them'
complete -c haul -n "__fish_haul_using_subcommand media; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c haul -n "__fish_haul_using_subcommand token; and not __fish_seen_subcommand_from new list revoke help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand token; and not __fish_seen_subcommand_from new list revoke help" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand token; and not __fish_seen_subcommand_from new list revoke help" -f -a "new" -d 'Makes a token and prints it, once'
complete -c haul -n "__fish_haul_using_subcommand token; and not __fish_seen_subcommand_from new list revoke help" -f -a "list" -d 'Lists the tokens: id, rights, root, expiry, status'
complete -c haul -n "__fish_haul_using_subcommand token; and not __fish_seen_subcommand_from new list revoke help" -f -a "revoke" -d 'Revokes a token: it is refused from now on, and its sessions end'
complete -c haul -n "__fish_haul_using_subcommand token; and not __fish_seen_subcommand_from new list revoke help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -l for -d 'The served directory that it opens, or `null:`; without it the one that was served so far' -r -F
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -l root -d 'Directory below the served one that it is limited to, which must exist' -r -F
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -l expires -d 'How long it is good for, like 12h or 7d; without it for ever' -r
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -l label -d 'A note that `haul token list` shows' -r
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -l host -d 'Print a whole URL with this host name' -r
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -l port -d 'The port in the printed URL: that of the `haul serve` which it is for' -r
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -l state -d 'The directory of what haul keeps: keys, tokens, what --measure found (mode 0700)' -r -F
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -l read -d 'Allow fetching and listing files (with none of the four options: everything)'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -l write -d 'Allow sending files, which replace others of their names'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -l list -d 'Allow listing files: names, sizes, times'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -l delete -d 'Allow removing files, as `push --delete` and `pull --move` do'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -l single-use -d 'Good for one transfer, which may resume'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -l json -d 'Print one JSON object a line'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from new" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from list" -l state -d 'The directory of what haul keeps: keys, tokens, what --measure found (mode 0700)' -r -F
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from list" -l json -d 'Print one JSON object a line'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from list" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from revoke" -l state -d 'The directory of what haul keeps: keys, tokens, what --measure found (mode 0700)' -r -F
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from revoke" -l json -d 'Print one JSON object a line'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from revoke" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from revoke" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from help" -f -a "new" -d 'Makes a token and prints it, once'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from help" -f -a "list" -d 'Lists the tokens: id, rights, root, expiry, status'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from help" -f -a "revoke" -d 'Revokes a token: it is refused from now on, and its sessions end'
complete -c haul -n "__fish_haul_using_subcommand token; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c haul -n "__fish_haul_using_subcommand probe; and not __fish_seen_subcommand_from disk net path help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand probe; and not __fish_seen_subcommand_from disk net path help" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand probe; and not __fish_seen_subcommand_from disk net path help" -f -a "disk" -d 'Measures how fast a disk is written and read, for how long, and how best'
complete -c haul -n "__fish_haul_using_subcommand probe; and not __fish_seen_subcommand_from disk net path help" -f -a "net" -d 'Measures the network to a server, memory to memory'
complete -c haul -n "__fish_haul_using_subcommand probe; and not __fish_seen_subcommand_from disk net path help" -f -a "path" -d 'Finds out what limits a transfer from SOURCE to a server\'s directory'
complete -c haul -n "__fish_haul_using_subcommand probe; and not __fish_seen_subcommand_from disk net path help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from disk" -l size -d 'Bytes of the file; without it 1.25 times memory, or half of what is free' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from disk" -l time -d 'How long each of the four profiles takes at most; without it 30s, with --quick 4s' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from disk" -l block-sizes -d 'Bytes that one call moves: a list like 64K,1M, or a range in steps of four, 4K..4M' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from disk" -l depths -d 'How many blocks are under way by io_uring, like 1,8,64' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from disk" -l methods -d 'Only these ways between memory and disk' -r -f -a "io-uring\t'O_DIRECT with many blocks under way'
direct\t'O_DIRECT, one block after the other'
buffered\t'Page cache in between, synced at the end; read with an empty cache'"
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from disk" -l rounds -d 'How often each block size and depth is measured; 0 leaves that out; without it 3' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from disk" -l html -d 'Write a page with charts, tables and the host\'s facts; one file, nothing is fetched' -r -F
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from disk" -l quick -d 'Less of everything, with at most 1 GiB: a look, no measurement'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from disk" -l json -d 'Print one JSON object a line: host, cell, and what else a bench has'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from disk" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from disk" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l streams -d 'Numbers of data streams; without it 1,2,4,8, with --quick 1,4, with --udp 1' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -s t -l time -d 'The counted time of a round; without it 5s, with --quick 1s' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l omit -d 'Not counted at a round\'s begin, while windows open; without it 1s, with --quick 250ms' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l interval -d 'How often figures are taken' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l congestion -d 'Congestion controls side by side, like cubic,bbr; without it as transfers choose' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l receive -d 'Fate of the bytes at the receivers: taken into memory, or dropped by the kernel' -r -f -a "copy\t'Into memory, as when a file is written'
discard\t'The kernel throws them away without a copy, as for null:'"
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l rate -d 'The most bytes a second of all streams of a way: 500M, or in bits 10Gbit' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l fabric -d 'Measure RDMA endpoints (libfabric), too, each round behind one by TCP' -r -f -a "auto\t''
verbs\t''
efa\t''
cxi\t''
shm\t''
tcp\t''"
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l datagram -d 'Bytes of a datagram, with --udp; without it what the path takes whole' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l block -d 'Bytes that one send or receive moves' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l rounds -d 'How often all of it is measured, one after the other' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l token-file -d 'Read the token from a file, not from the URL or HAUL_TOKEN' -r -F
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l bind -d 'Addresses or interfaces of this host that connections come from, such as eth0,eth1' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l dscp -d 'Class that the packets ask for: a number below 64, or a name such as af11, cs1, le' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l scitag -d 'Numbers of the experiment and the activity that data is of (scitags.org), such as 2.14' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l firefly -d 'Collectors that hear of each stream, too; without a port 10514' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l proxy -d 'Go by a proxy: socks5://HOST, socks5h://HOST, http://USER:PASSWORD@HOST:PORT, or none' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l html -d 'Write a page with charts, tables and the host\'s facts; one file, nothing is fetched' -r -F
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -s R -l reverse -d 'Server to client'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l bidir -d 'Both ways at once, so many streams each'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -s u -l udp -d 'Datagrams at a rate, not streams: loss, jitter, reordering'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l no-path-mtu -d 'Do not look for the path\'s MTU, which takes UDP'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l quick -d 'Less of everything: a look, no measurement'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -l json -d 'Print one JSON object a line: host, cell, and what else a bench has'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from net" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from path" -l size -d 'Most bytes that a run moves; without it what takes about --time' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from path" -l time -d 'How long a run takes, about' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from path" -l rounds -d 'How often each run is made; the one in the middle counts' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from path" -l streams -d 'Data connections; without it chosen as a transfer does' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from path" -l protection -d 'How the data is protected on its way' -r -f -a "clear\t'A digest that catches accidents; anyone on the path can read and change the data'
safe\t'A keyed MAC of each span: nobody on the path can change, swap or replay a byte unseen'
private\t'TLS 1.3 for the data too: nobody on the path can read a byte either'"
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from path" -l token-file -d 'Read the token from a file, not from the URL or HAUL_TOKEN' -r -F
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from path" -l proxy -d 'Go by a proxy: socks5://HOST, socks5h://HOST, http://USER:PASSWORD@HOST:PORT, or none' -r
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from path" -l html -d 'Write a page with charts, tables and the host\'s facts; one file, nothing is fetched' -r -F
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from path" -l json -d 'Print one JSON object a line: host, cell, and what else a bench has'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from path" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from path" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from help" -f -a "disk" -d 'Measures how fast a disk is written and read, for how long, and how best'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from help" -f -a "net" -d 'Measures the network to a server, memory to memory'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from help" -f -a "path" -d 'Finds out what limits a transfer from SOURCE to a server\'s directory'
complete -c haul -n "__fish_haul_using_subcommand probe; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c haul -n "__fish_haul_using_subcommand tune" -l apply -d 'Make the changes, all or those of the checks named, like --apply=rings,mtu (as root)' -r
complete -c haul -n "__fish_haul_using_subcommand tune" -l measure-time -d 'Time that each probe of --measure takes' -r
complete -c haul -n "__fish_haul_using_subcommand tune" -l token-file -d 'Take the token of URL from this file' -r -F
complete -c haul -n "__fish_haul_using_subcommand tune" -l explain -d 'Say all about one check: what it looks at, why, who says so, what it finds here' -r
complete -c haul -n "__fish_haul_using_subcommand tune" -l role -d 'Purpose of the host' -r -f -a "dtn\t'A data transfer node: several streams share its buffers'
test-host\t'Let one stream fill the path, for measurements'
media\t'A server of paced streams: thousands of connections'"
complete -c haul -n "__fish_haul_using_subcommand tune" -l rtt -d 'How far its peers are: the round trip time, like 80ms or 0.2ms' -r
complete -c haul -n "__fish_haul_using_subcommand tune" -l rate -d 'Rate to reach, in bits a second, like 100G; without it the fastest card\'s' -r
complete -c haul -n "__fish_haul_using_subcommand tune" -l nic -d 'The network card that counts; without it all that are up' -r
complete -c haul -n "__fish_haul_using_subcommand tune" -l boot-root -d 'Write the files for the next boot below DIR, such as an image, with --apply' -r -F
complete -c haul -n "__fish_haul_using_subcommand tune" -l ledger -d 'Directory that remembers what was changed' -r -F
complete -c haul -n "__fish_haul_using_subcommand tune" -l root -d 'Audit a stored host: a tree of /proc, /sys and the answers of programs' -r -F
complete -c haul -n "__fish_haul_using_subcommand tune" -l html -d 'Write the report as a page; one file, nothing is fetched' -r -F
complete -c haul -n "__fish_haul_using_subcommand tune" -l measure -d 'Measure each change of --apply between this host and URL, and keep it if it helps'
complete -c haul -n "__fish_haul_using_subcommand tune" -l undo -d 'Set back all that --apply changed, exactly as it was'
complete -c haul -n "__fish_haul_using_subcommand tune" -l dry-run -d 'Print what --apply or --undo would do as a shell script, and do nothing'
complete -c haul -n "__fish_haul_using_subcommand tune" -s a -l all -d 'Show what is good, and what this host does not have, too'
complete -c haul -n "__fish_haul_using_subcommand tune" -l this-boot -d 'Write no files for the next boot, with --apply'
complete -c haul -n "__fish_haul_using_subcommand tune" -l json -d 'Print one JSON object a line: goal, finding, change, report'
complete -c haul -n "__fish_haul_using_subcommand tune" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand tune" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand bench; and not __fish_seen_subcommand_from engines files chooser tuning media fabric protection studies help" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand bench; and not __fish_seen_subcommand_from engines files chooser tuning media fabric protection studies help" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand bench; and not __fish_seen_subcommand_from engines files chooser tuning media fabric protection studies help" -f -a "engines" -d 'Measures every engine that sends with every engine that receives'
complete -c haul -n "__fish_haul_using_subcommand bench; and not __fish_seen_subcommand_from engines files chooser tuning media fabric protection studies help" -f -a "files" -d 'Repeats two studies: times of files against read and write, and rates over time'
complete -c haul -n "__fish_haul_using_subcommand bench; and not __fish_seen_subcommand_from engines files chooser tuning media fabric protection studies help" -f -a "chooser" -d 'Compares what haul chooses with every pair of engines that works'
complete -c haul -n "__fish_haul_using_subcommand bench; and not __fish_seen_subcommand_from engines files chooser tuning media fabric protection studies help" -f -a "tuning" -d 'Repeats a study of tuned hosts: one change at a time, with 1 to 8 streams'
complete -c haul -n "__fish_haul_using_subcommand bench; and not __fish_seen_subcommand_from engines files chooser tuning media fabric protection studies help" -f -a "media" -d 'Repeats a study of media on demand: a crowd of viewers, by each way of sending'
complete -c haul -n "__fish_haul_using_subcommand bench; and not __fish_seen_subcommand_from engines files chooser tuning media fabric protection studies help" -f -a "fabric" -d 'Repeats a study of user-level networking: messages and files by RDMA endpoints'
complete -c haul -n "__fish_haul_using_subcommand bench; and not __fish_seen_subcommand_from engines files chooser tuning media fabric protection studies help" -f -a "protection" -d 'Compares the protections of the data: clear, safe, and private by the kernel and by haul'
complete -c haul -n "__fish_haul_using_subcommand bench; and not __fish_seen_subcommand_from engines files chooser tuning media fabric protection studies help" -f -a "studies" -d 'Repeats all studies that this host can, and writes one page: theirs beside ours'
complete -c haul -n "__fish_haul_using_subcommand bench; and not __fish_seen_subcommand_from engines files chooser tuning media fabric protection studies help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l target -d 'File below the server\'s root to write to, with URL; it stays there' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l size -d 'Bytes that each measurement moves, like 1G; without it 256M, with --quick 64M' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l dir -d 'Directory for the files; without it the current one' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l rounds -d 'How often each is measured, if time allows; without it 3, with --quick 1' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l budget -d 'No more rounds after this time; without it 3m, with --full 1h' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l streams -d 'Numbers of streams, like 1,2,4,8; with URL the first of them' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l block-sizes -d 'Bytes that one call moves: a list like 4K,1M, or a range in steps of four, 4K..4M' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l send-engine -d 'Only these engines send' -r -f -a "read-write\t'read into a buffer, write it out; works everywhere'
mmap\t'study: send from and receive into a mapping of the file'
sendfile\t'page cache to socket inside the kernel'
splice\t'file to socket and socket to file through a pipe inside the kernel'
direct\t'O_DIRECT by a thread that runs beside the stream; past the page cache'
io-uring\t'O_DIRECT at depth by io_uring; past the page cache'
zerocopy-send\t'study: O_DIRECT reads, sent by MSG_ZEROCOPY; for network cards, not for loopback'"
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l receive-engine -d 'Only these engines receive' -r -f -a "read-write\t'read into a buffer, write it out; works everywhere'
mmap\t'study: send from and receive into a mapping of the file'
splice\t'file to socket and socket to file through a pipe inside the kernel'
direct\t'O_DIRECT by a thread that runs beside the stream; past the page cache'
io-uring\t'O_DIRECT at depth by io_uring; past the page cache'
dontcache\t'buffered writes that leave the page cache at once (Linux 6.14)'
zerocopy-receive\t'study: the socket\'s pages, mapped and written; for network cards with header split'
discard\t'throw away what arrives, for null:'"
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l only -d 'Only these parts, over loopback' -r -f -a "pairs\t'Each engine that sends with each that receives'
cold\t'Each engine that sends, from the disk'
blocks\t'Each engine at each block size'
offsets\t'A fixed offset and an advancing one: table 2 of the study of massive data'
streams\t'Numbers of streams'"
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l html -d 'Write a page with charts, tables and the host\'s facts; one file, nothing is fetched' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l quick -d 'Less of everything: a look, no measurement'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l full -d 'All pairs with all block sizes and numbers of streams, warm and cold: hours'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -l json -d 'Print one JSON object a line: host, cell, and what else a bench has'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from engines" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l size -d 'Bytes of the large file; without it 10 GB, or what fits' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l cached-size -d 'Bytes of the file that the page cache is to absorb; without it up to 10 GB, an eighth of the free memory' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l dir -d 'Directory for the files; without it the current one' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l rounds -d 'Rounds of each measurement, if time allows; without it 3, with --small 5, with --quick 1' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l budget -d 'No more rounds after this time; without it 10m, with --small 30m' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l only -d 'Only these parts' -r -f -a "times\t'Times of files from 7 MB to 1 GB: table 1 of the study of transferTo()'
recordings\t'One large file over time: table 3 and figures 12 to 15 of the study of massive data'"
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l files -d 'Number of the small files; without it 20000, with --quick 500' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l file-size -d 'Bytes of each small file; without it 16K' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l file-systems -d 'File systems of the small files; without it all, in images as root, and --dir\'s own' -r -f -a "ext4\t'Made in an image file, with a journal'
xfs\t'Made in an image file'
btrfs\t'Made in an image file'
own\t'The directory\'s own'"
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l report -d 'Write the page of the small files to FILE, and the JSON lines beside it: page.html and page.json' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l html -d 'Write a page with charts, tables and the host\'s facts; one file, nothing is fetched' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l quick -d 'Less of everything: the table\'s files up to --size only, 64M without it'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l small -d 'Many small files instead: haul both ways, tar and rsync where installed, and the bare floor'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -l json -d 'Print one JSON object a line: host, cell, and what else a bench has'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from files" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from chooser" -l dir -d 'A directory to work in, one for each file system; without it the current one, tmpfs, and for root xfs and btrfs' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from chooser" -l sizes -d 'Sizes of the file, like 1M,1G,beyond; `beyond` is larger than memory' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from chooser" -l streams -d 'Numbers of streams; without it 1,4' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from chooser" -l send-engine -d 'Only pairs with these engines that send' -r -f -a "read-write\t'read into a buffer, write it out; works everywhere'
mmap\t'study: send from and receive into a mapping of the file'
sendfile\t'page cache to socket inside the kernel'
splice\t'file to socket and socket to file through a pipe inside the kernel'
direct\t'O_DIRECT by a thread that runs beside the stream; past the page cache'
io-uring\t'O_DIRECT at depth by io_uring; past the page cache'
zerocopy-send\t'study: O_DIRECT reads, sent by MSG_ZEROCOPY; for network cards, not for loopback'"
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from chooser" -l receive-engine -d 'Only pairs with these engines that receive' -r -f -a "read-write\t'read into a buffer, write it out; works everywhere'
mmap\t'study: send from and receive into a mapping of the file'
splice\t'file to socket and socket to file through a pipe inside the kernel'
direct\t'O_DIRECT by a thread that runs beside the stream; past the page cache'
io-uring\t'O_DIRECT at depth by io_uring; past the page cache'
dontcache\t'buffered writes that leave the page cache at once (Linux 6.14)'
zerocopy-receive\t'study: the socket\'s pages, mapped and written; for network cards with header split'
discard\t'throw away what arrives, for null:'"
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from chooser" -l rounds -d 'How often each pair is measured, if time allows; without it 5, with --quick 1' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from chooser" -l budget -d 'No more rounds after this time; without it 1h' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from chooser" -l html -d 'Write a page with charts, tables and the host\'s facts; one file, nothing is fetched' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from chooser" -l quick -d 'One round of a few sizes: a look, no measurement'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from chooser" -l json -d 'Print one JSON object a line: host, cell, and what else a bench has'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from chooser" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from chooser" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l only -d 'Only one part' -r -f -a "veth\t'Streams over a pair of virtual interfaces: memory'
wan\t'Streams over an emulated long path'
storage\t'Files from two disks over the long path'"
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l disks -d 'Directories on two disks to compare; without it two image files, one of them bound' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l file-size -d 'The file that leaves each disk; without it 256M, with --quick 8M' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l streams -d 'Numbers of streams; without it 1,2,4,8, with --quick 1,4' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l rate -d 'The rate of the long path; without it 1Gbit' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l rtt -d 'The round trip of the long path' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l time -d 'How long each rate is measured; without it 4s, with --quick 1s' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l omit -d 'Time left out at the begin, while windows grow; without it 3s, with --quick 1s' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l rounds -d 'How often each is measured, if time allows; without it once' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l budget -d 'No more rounds after this time; without it 30m' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l dir -d 'Directory for the state of its servers; without it the one for temporary files' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l html -d 'Write a page with charts, tables and the host\'s facts; one file, nothing is fetched' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l quick -d 'Less of everything: a look, no measurement'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -l json -d 'Print one JSON object a line: host, cell, and what else a bench has'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from tuning" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l only -d 'Only these parts' -r -f -a "crowd\t'Deadlines of a crowd of viewers'
single-file\t'Processor time of one file that is read whole'
response\t'Response times by the file\'s size'
combinations\t'Small requests, by each engine that sends'"
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l users -d 'Most viewers that come' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l per-hour -d 'Viewers that come in an hour, on average' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l mean-gap -d 'The time between two viewers, on average; without it 180ms' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l films -d 'How many films there are; without it 30' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l film-size -d 'Bytes of a film; without it 10M' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l rate -d 'Rate that a film plays at, in bits a second; without it 9M' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l theta -d 'How popular films are: the i-th as 1 / i^(1 - THETA); 0 is Zipf\'s law, 1 makes all alike' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l periods -d 'Periods for which the crowd watches; without it 32' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l period -d 'A period: what a player plays in one has to be there when it begins; without it 500ms' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l methods -d 'Only these methods, such as one-copy,normal-no-readahead; without it those of the study' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l rounds -d 'How often each method meets a crowd; each round has another seed, the same for all methods' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l disk-share -d 'The bound of the disk: the share of the bytes that a crowd plays when most of it watches, in as many reads as these are at the kernel\'s 128 KiB of read-ahead' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l read-rate -d 'Bind the disk to these bytes a second and not by a share' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l reads -d 'Bind the disk to these reads a second, as seeks cost, and not by a share' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l memory -d 'The memory of a server with its page cache; without it 48M' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l seed -d 'Seed of the random numbers: the same seed is the same crowd' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l file-size -d 'The file that is read whole; without it 256M' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l sizes -d 'Sizes of files for response times, like 64K,1M; without it 64K to 64M' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l dir -d 'Directory for the films; without it the current one' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l against -d 'Take the crowd to another HTTP server: the URL of a page with links to films, or of a film' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l pid -d 'Processes of the server of --against on this host, for their processor time' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l html -d 'Write a page with charts, tables and the host\'s facts; one file, nothing is fetched' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l paper -d 'The study\'s own crowd: 100 users an hour, 30 films of 300 MB at 1.5 Mbit/s, 1000 periods of 3 s; a method takes 50 minutes'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l unbound -d 'Bound neither disk nor memory'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -l json -d 'Print one JSON object a line: host, cell, and what else a bench has'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from media" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -l fabric -d 'Only these providers: verbs, shm, tcp; without it each of them that this host has' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -l address -d 'Address of the card for verbs; without it the first that a card of this host has' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -l only -d 'Only these parts' -r -f -a "messages\t'Latency, bandwidth and processor time of messages, polled and waited for'
files\t'Times and processor time of files'
ping-pong\t'Messages to and fro beside fi_pingpong'"
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -l message-sizes -d 'Lengths of messages, like 4,4K,1M; without it 4 bytes to 4 MiB in steps of four' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -l file-sizes -d 'Lengths of files, like 1K,64K,1G; without it 1K to 256K in steps of two, 1M, 16M, 256M, and with --paper 4G' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -l repeats -d 'Most repeats of each message and file in a round; without it 5000, with --paper 100000' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -l rounds -d 'How often each is measured, if time allows; without it 3, with --quick 1' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -l budget -d 'No more rounds after this time; without it 5m, with --paper 6h' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -l dir -d 'Directory for the files; without it the current one' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -l html -d 'Write a page with charts, tables and the host\'s facts; one file, nothing is fetched' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -l paper -d 'The study\'s repeats, and a file of 4 GiB: an hour and more'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -l quick -d 'Less of everything: a look, no measurement'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -l json -d 'Print one JSON object a line: host, cell, and what else a bench has'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from fabric" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from protection" -l size -d 'Bytes of the file; without it 2G, with --quick 64M' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from protection" -l streams -d 'Data streams; without it as many as haul chooses' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from protection" -l rounds -d 'Rounds; without it 5, with --quick 1' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from protection" -l budget -d 'No more rounds after this time; without it 5m' -r
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from protection" -l dir -d 'Directory for the files; without it the current one' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from protection" -l html -d 'Write a page with charts, tables and the host\'s facts; one file, nothing is fetched' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from protection" -l quick -d 'Less of everything: a look, no measurement'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from protection" -l json -d 'Print one JSON object a line: host, cell, and what else a bench has'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from protection" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from protection" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from studies" -l only -d 'Only these benches' -r -f -a "engines\t'A fixed offset against an advancing one'
files\t'Times of files, and recordings'
tuning\t'One change of two hosts at a time'
media\t'A crowd of viewers, and small requests'
fabric\t'Messages and files by RDMA endpoints'
java\t'Times of files in the JVM, with --jar'"
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from studies" -l jar -d 'The program of haul\'s JVM client, which repeats a study in the JVM itself: clients/java makes it, as command/target/haul.jar; needs java 17 or newer' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from studies" -l dir -d 'Directory for the files; without it the current one' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from studies" -l report -d 'Write the page with all figures to FILE, and the JSON lines beside it: page.html and page.json' -r -F
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from studies" -l paper -d 'The studies\' own sizes and times: hours, 100 GB twice on the disk'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from studies" -l quick -d 'Less of everything: a look, no measurement'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from studies" -l json -d 'Print one JSON object a line: host, bench, cell, figure, and what else a bench has'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from studies" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from studies" -s V -l version -d 'Print version'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "engines" -d 'Measures every engine that sends with every engine that receives'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "files" -d 'Repeats two studies: times of files against read and write, and rates over time'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "chooser" -d 'Compares what haul chooses with every pair of engines that works'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "tuning" -d 'Repeats a study of tuned hosts: one change at a time, with 1 to 8 streams'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "media" -d 'Repeats a study of media on demand: a crowd of viewers, by each way of sending'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "fabric" -d 'Repeats a study of user-level networking: messages and files by RDMA endpoints'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "protection" -d 'Compares the protections of the data: clear, safe, and private by the kernel and by haul'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "studies" -d 'Repeats all studies that this host can, and writes one page: theirs beside ours'
complete -c haul -n "__fish_haul_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "demo" -d 'Shows haul in a minute: moves a file, kills the transfer, resumes and verifies it'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "serve" -d 'Serves a directory: receives into it and sends from it'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "push" -d 'Sends files and directories to a server'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "pull" -d 'Fetches files and directories from a server'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "copy" -d 'Copies between two machines that ssh reaches: the bytes go from one to the other'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "plan" -d 'Cuts a directory into shards that many machines move'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "report" -d 'Adds up what the runs of a plan have done, and says how to finish it'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "ls" -d 'Lists what a server has, or a machine that ssh reaches'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "verify" -d 'Reads files again from their disks and compares them with a manifest'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "media" -d 'Serves films and recordings over HTTP to players, browsers and ffmpeg'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "token" -d 'Makes, lists and revokes the tokens that a server accepts'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "probe" -d 'Measures what disks, network and path could carry, before anything is moved'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "tune" -d 'Audits this host as a data transfer node, and tunes it, with a way back'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "bench" -d 'Measures this host\'s engines and haul\'s choices, and repeats studies'
complete -c haul -n "__fish_haul_using_subcommand help; and not __fish_seen_subcommand_from demo serve push pull copy plan report ls verify media token probe tune bench help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from media" -f -a "capacity" -d 'How many viewers there may be, by what was measured, and what limits them'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from token" -f -a "new" -d 'Makes a token and prints it, once'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from token" -f -a "list" -d 'Lists the tokens: id, rights, root, expiry, status'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from token" -f -a "revoke" -d 'Revokes a token: it is refused from now on, and its sessions end'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from probe" -f -a "disk" -d 'Measures how fast a disk is written and read, for how long, and how best'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from probe" -f -a "net" -d 'Measures the network to a server, memory to memory'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from probe" -f -a "path" -d 'Finds out what limits a transfer from SOURCE to a server\'s directory'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "engines" -d 'Measures every engine that sends with every engine that receives'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "files" -d 'Repeats two studies: times of files against read and write, and rates over time'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "chooser" -d 'Compares what haul chooses with every pair of engines that works'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "tuning" -d 'Repeats a study of tuned hosts: one change at a time, with 1 to 8 streams'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "media" -d 'Repeats a study of media on demand: a crowd of viewers, by each way of sending'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "fabric" -d 'Repeats a study of user-level networking: messages and files by RDMA endpoints'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "protection" -d 'Compares the protections of the data: clear, safe, and private by the kernel and by haul'
complete -c haul -n "__fish_haul_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "studies" -d 'Repeats all studies that this host can, and writes one page: theirs beside ours'
