//! The command `satlink`: runs an emulated beam, and controls a running one.

mod arguments;

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use satlink::config::Config;
use satlink::control::{Request, send};
use satlink::emulator::Emulator;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run { config } => run(&config),
        Command::CheckConfig { config } => check(&config),
        Command::Selftest => selftest(),
        Command::Ctl { socket, action } => action
            .request()
            .and_then(|request| control(&socket, &request)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("satlink: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &Path) -> Result<(), Box<dyn Error>> {
    let config = Config::load(path)?;
    let emulator = Emulator::new(&config)?;
    // Whoever started the program waits for this line.
    println!("ready {}", config.socket.display());
    io::stdout().flush()?;
    Ok(emulator.run()?)
}

fn check(path: &Path) -> Result<(), Box<dyn Error>> {
    let config = Config::load(path)?;
    println!(
        "{}: ok, {} terminals",
        path.display(),
        config.terminals.len()
    );
    Ok(())
}

fn selftest() -> Result<(), Box<dyn Error>> {
    let records = satlink::selftest::run(&std::env::current_exe()?)?;
    for record in &records {
        println!("{}", serde_json::to_string(record)?);
    }
    match records.iter().all(|record| record.met) {
        true => Ok(()),
        false => Err("a target was missed".into()),
    }
}

fn control(socket: &Path, request: &Request) -> Result<(), Box<dyn Error>> {
    let reply = send(socket, request)?;
    if let Some(error) = reply.error {
        return Err(error.into());
    }
    match (&reply.stats, &reply.queue) {
        (Some(stats), _) => println!("{}", serde_json::to_string_pretty(stats)?),
        (_, Some(queue)) => println!("{}", serde_json::to_string(queue)?),
        _ => println!("{}", serde_json::to_string(&reply)?),
    }
    Ok(())
}
