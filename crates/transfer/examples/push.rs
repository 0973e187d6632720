//! Serves a directory and pushes a file to it.
//!
//! `cargo run -p haul-transfer --example push FILE DIRECTORY`

use haul_transfer::{
    Interrupt, PushRequest, ServeOptions, ServeRoot, Server, SourceSpec, TransferOptions, push,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(file), Some(directory)) = (arguments.next(), arguments.next()) else {
        return Err("give a file and a directory".into());
    };
    let root = ServeRoot::Directory(directory.into());
    let state = std::env::temp_dir().join(format!("haul-example-{}", std::process::id()));
    let listen = "127.0.0.1:0".to_owned();
    let options = ServeOptions { listen, once: true, ..ServeOptions::new(root, state.clone()) };
    let server = Server::bind(options).map_err(|problem| problem.to_string())?;
    let (url, interrupt) = (server.url(), Interrupt::default());
    let serving = std::thread::spawn(move || server.run(&Interrupt::default(), &|_| {}));
    let sources = vec![SourceSpec::Path(file)];
    let request = PushRequest { sources, url, options: TransferOptions::default() };
    let report = push(&request, &interrupt, &mut |event| println!("{event:?}"))?;
    println!("{} bytes at {} Gbit/s", report.moved_bytes, report.gbit_per_s);
    let _ = serving.join();
    Ok(std::fs::remove_dir_all(state)?)
}
