//! Pushes files to a server.
//!
//! `cargo run -p haul-transfer --example push FILE... URL`

use haul_transfer::{Interrupt, PushRequest, push};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let url = words.pop().ok_or("give files, and the URL that `haul serve` printed")?;
    let request = PushRequest::new(words.iter().map(String::as_str), url.parse()?);
    let report = push(&request, &Interrupt::default(), &mut |event| println!("{event:?}"))?;
    println!("{} bytes at {} Gbit/s", report.moved_bytes, report.gbit_per_s);
    Ok(())
}
