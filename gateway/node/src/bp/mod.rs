//! `underpass bp`: bundles by hand, through the applications' socket of a
//! running node.

mod command;
mod connection;
mod echo;
mod error;
mod inspect;
mod ping;
mod progress;
mod receive;
mod security;
mod send;
mod trace;
mod upload;

pub use command::BpCommand;
pub use error::BpError;

/// Executes a command.
///
/// # Errors
/// When it fails; the reason is for the user.
pub fn execute(command: BpCommand) -> Result<(), BpError> {
    if let BpCommand::Inspect(command) = command {
        return inspect::execute(&command);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BpError::Runtime)?;
    runtime.block_on(async {
        match command {
            BpCommand::Send(command) => send::execute(command).await,
            BpCommand::Receive(command) => receive::execute(command).await,
            BpCommand::Ping(command) => ping::execute(command).await,
            BpCommand::Echo(command) => echo::execute(command).await,
            BpCommand::Trace(command) => trace::execute(command).await,
            BpCommand::Inspect(_) => Ok(()),
        }
    })
}
