//! Serves a directory to one client, prints its URL, and then what happens.
//!
//! `cargo run -p haul-transfer --example serve DIRECTORY STATE`, where STATE is a directory for the
//! key and the tokens of the server.

use haul_transfer::{Interrupt, ServeOptions, ServeRoot, Server};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let (Some(directory), Some(state)) = (words.next(), words.next()) else {
        return Err("give a directory to serve and one for the server's state".into());
    };
    let mut options = ServeOptions::new(ServeRoot::Directory(directory.into()), state.into());
    options.once = true;
    let server = Server::bind(options)?;
    println!("{}", server.url().reveal());
    Ok(server.run(&Interrupt::default(), &|event| println!("{event}"))?)
}
