//! `underpass pki`: the private certificate authority.

use std::io::Read;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use underpass_pki::{Authority, CertificateRequest, Issued, PkiError, RenewKey};

use crate::cli::PkiCommand;

/// More than any request has, bytes.
const MOST_INPUT: u64 = 64 << 10;

/// Executes the command, and prints what was done.
///
/// # Errors
/// When files cannot be written, or the authority does not know the node.
pub fn execute(command: PkiCommand) -> Result<(), PkiError> {
    let now = SystemTime::now();
    match command {
        PkiCommand::Init {
            folder,
            name,
            certificate,
            key,
        } => {
            match certificate.zip(key) {
                Some((certificate, key)) => {
                    Authority::adopt(&folder.dir, &certificate, &key, now)?;
                }
                None => {
                    Authority::init(&folder.dir, &name, Authority::VALIDITY_DAYS, now)?;
                }
            }
            println!("{}: authority made", folder.dir.display());
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
        PkiCommand::Revoke {
            folder,
            node,
            json: true,
        } => {
            let revoked = Authority::open(&folder.dir)?.revoke(node, now);
            print_or_refuse(revoked.map(|serials| {
                let serials: Vec<String> = serials.iter().map(ToString::to_string).collect();
                json!({ "revoked": serials })
            }))?;
        }
        PkiCommand::Revoke { folder, node, .. } => {
            for serial in Authority::open(&folder.dir)?.revoke(node, now)? {
                println!("revoked certificate {serial} of node {node}");
            }
            println!("copy ca.crl to the nodes that have their own copy of the folder");
        }
        PkiCommand::Sign {
            folder,
            node,
            renewal,
            check,
            days,
        } => {
            let signing = Signing {
                node,
                renewal,
                check,
                days,
            };
            print_or_refuse(sign(&folder.dir, &signing, now))?;
        }
        PkiCommand::IssueServer {
            folder,
            names,
            days,
        } => {
            let dir = Authority::open(&folder.dir)?.issue_server(&names, days, now)?;
            println!("issued {}/tls.crt and tls.key", dir.display());
        }
    }
    Ok(())
}

struct Signing {
    /// The only node that may ask.
    node: Option<u64>,
    /// For the key of the node's present certificate.
    renewal: bool,
    /// Not at all: whose it is.
    check: bool,
    /// Validity, days.
    days: u64,
}

/// Signs, or only checks, the request on standard input.
fn sign(dir: &Path, signing: &Signing, now: SystemTime) -> Result<Value, PkiError> {
    let mut text = String::new();
    let read = std::io::stdin().take(MOST_INPUT).read_to_string(&mut text);
    read.map_err(|error| PkiError::Request(error.to_string()))?;
    let request = CertificateRequest::parse(&text)?;
    if let Some(node) = signing.node.filter(|node| *node != request.node) {
        let named = request.node;
        return Err(PkiError::OtherNode { named, node });
    }
    let key_sha256 = request.key_sha256();
    if signing.check {
        // Checked before the number's token is used up.
        Authority::check_enrollable(dir, request.node)?;
        return Ok(json!({ "node": request.node, "key_sha256": key_sha256 }));
    }
    let mut authority = Authority::open(dir)?;
    let signed = match signing.renewal {
        false => authority.sign(request.node, &request, signing.days, now)?,
        true => authority.renew_by_request(&request, signing.days, now)?,
    };
    let end = signed.issued.not_after.duration_since(UNIX_EPOCH);
    Ok(json!({
        "node": signed.issued.node,
        "key_sha256": key_sha256,
        "serial": signed.issued.serial.to_string(),
        "not_after_ms": u64::try_from(end.unwrap_or_default().as_millis()).unwrap_or(u64::MAX),
        "is_new": signed.is_new,
        "certificate": signed.certificate,
        "authority": signed.authority,
        "revocations": signed.revocations,
    }))
}

/// Prints a result, or why the request is refused, which is an answer, too. A problem of this
/// machine is an error.
fn print_or_refuse(result: Result<Value, PkiError>) -> Result<(), PkiError> {
    match result {
        Ok(value) => println!("{value}"),
        Err(error) if error.is_refusal() => println!("{}", json!({ "refused": error.to_string() })),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn tell(what: &str, issued: &Issued) {
    println!(
        "{what} certificate {} of node {}: set tls.pki_dir = {:?} on that node",
        issued.serial, issued.node, issued.dir
    );
}
