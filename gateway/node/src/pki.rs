//! `underpass pki`: the private certificate authority.

use std::time::SystemTime;

use underpass_pki::{Authority, Issued, PkiError, RenewKey};

use crate::cli::PkiCommand;

/// Does what the command line says, and says what was done.
///
/// # Errors
/// When files cannot be written, or the authority does not know the node.
pub fn execute(command: PkiCommand) -> Result<(), PkiError> {
    let now = SystemTime::now();
    match command {
        PkiCommand::Init { folder, name } => {
            Authority::init(&folder.dir, &name, Authority::VALIDITY_DAYS, now)?;
            println!("{}: authority {name:?} made", folder.dir.display());
            println!("keep {} secret", folder.dir.join("ca.key").display());
        }
        PkiCommand::Issue { folder, node, days } => {
            let issued = Authority::open(&folder.dir)?.issue(node, days, now)?;
            tell("issued", &issued);
        }
        PkiCommand::Renew {
            folder,
            node,
            days,
            keep_key,
        } => {
            let key = if keep_key {
                RenewKey::Keep
            } else {
                RenewKey::New
            };
            let issued = Authority::open(&folder.dir)?.renew(node, key, days, now)?;
            tell("renewed", &issued);
        }
        PkiCommand::Revoke { folder, node } => {
            for serial in Authority::open(&folder.dir)?.revoke(node, now)? {
                println!("revoked certificate {serial} of node {node}");
            }
            println!("copy ca.crl to the nodes that have their own copy of the folder");
        }
    }
    Ok(())
}

fn tell(what: &str, issued: &Issued) {
    println!(
        "{what} certificate {} of node {}: set tls.pki_dir = {:?} on that node",
        issued.serial, issued.node, issued.dir
    );
}
