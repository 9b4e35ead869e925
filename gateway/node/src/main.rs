//! `underpass`: one node of the gateway, terminal, hub or relay by its
//! configuration.

mod accounts;
mod allocator;
mod api;
mod bp;
mod bpsec;
mod bring_up;
mod budget;
mod budgets;
mod check;
mod cli;
mod client;
mod clock;
mod config;
mod confinement;
mod enrolment;
mod flow_decisions;
mod hexadecimal;
mod hold;
mod holds;
mod incarnation;
mod interception;
mod known_links;
mod known_time;
mod logging;
mod manual;
mod migrate;
mod modem;
mod panics;
mod password;
mod path_manager;
mod pki;
mod positions;
mod privileged;
mod provider;
mod reload;
mod route;
mod run;
mod security;
mod shell;
#[cfg(test)]
mod simulation;
mod speed_test;
mod state_files;
mod status;
mod switch;
mod top;
mod traces;
mod upgrade;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

fn main() -> ExitCode {
    match dispatch(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("underpass: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                // A cause that the error's text quotes is not repeated.
                let text = cause.to_string();
                if !error.to_string().contains(&text) {
                    eprintln!("  because: {text}");
                }
                source = cause.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn dispatch(cli: Cli) -> Result<(), Box<dyn std::error::Error>> {
    match cli.command {
        Command::Run { config, take_over } => Ok(run::run(&config, take_over)?),
        Command::Helper => Ok(privileged::serve()?),
        Command::Launcher { program, arguments } => {
            Ok(upgrade::launcher::serve(&program, &arguments)?)
        }
        Command::CheckConfig { config } => Ok(check::execute(&config)?),
        Command::Status { socket, json } => Ok(status::print(&socket, json)?),
        Command::Top(command) => Ok(top::execute(&command)?),
        Command::Route(command) => Ok(route::execute(&command)?),
        Command::Reload { socket } => Ok(reload::execute(&socket)?),
        Command::Upgrade { socket } => Ok(upgrade::command::execute(&socket)?),
        Command::Switch(command) => Ok(switch::execute(&command)?),
        Command::Bp(command) => Ok(bp::execute(command)?),
        Command::Budget(command) => Ok(budget::execute(&command)?),
        Command::BringUp(command) => Ok(bring_up::execute(&command)?),
        Command::SpeedTest(command) => Ok(speed_test::execute(&command)?),
        Command::Migrate(command) => Ok(migrate::execute(&command)?),
        Command::Decisions(command) => Ok(flow_decisions::execute(&command)?),
        Command::Holds(command) => Ok(hold::execute(&command)?),
        Command::HashPassword => Ok(password::print_hash()?),
        Command::Enroll(command) => Ok(enrolment::execute(&command)?),
        Command::Pki(command) => Ok(pki::execute(command)?),
        Command::Completion { shell } => Ok(manual::print_completion(shell)?),
        Command::ManualPages { dir } => Ok(manual::write_pages(&dir)?),
    }
}
