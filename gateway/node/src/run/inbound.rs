//! Streams that peers open: dialled by the edge of this node.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use underpass_edge::dial::{Dialler, serve_inbound};
use underpass_edge::stream::{Failure, FailureCode, Host, OpenRequest, Protocol, Target};
use underpass_streams as streams;

use crate::shell::{Inbound, Shell};

/// Serves the streams that come out of `inbound`. Their number is bounded by
/// the stream layer.
pub(super) async fn serve(
    mut inbound: UnboundedReceiver<Inbound>,
    shell: Arc<Shell>,
    dialler: Arc<Dialler>,
) {
    while let Some(stream) = inbound.recv().await {
        let mut conduit = shell.conduit(&stream);
        let peer = stream.key.peer;
        let request = match request(&stream) {
            Ok(request) => request,
            Err(failure) => {
                tracing::info!(peer, %failure, "stream refused");
                conduit.reset(failure);
                continue;
            }
        };
        let dialler = dialler.clone();
        tokio::spawn(async move {
            // Its end is in the log.
            let _ = serve_inbound(conduit, peer, request, &dialler).await;
        });
    }
}

fn request(stream: &Inbound) -> Result<OpenRequest, Failure> {
    let open = &stream.open;
    let target = match &open.target {
        streams::Target::Address(address) => Target::Address(*address),
        streams::Target::Name { host, port } => Target::Name {
            host: Host::new(host)
                .map_err(|error| Failure::new(FailureCode::UnknownHost, error.to_string()))?,
            port: *port,
        },
    };
    let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    Ok(OpenRequest {
        target,
        client: open.client.unwrap_or(unknown),
        listener: "peer".into(),
        protocol: Protocol::Transparent,
        class: open.class,
        awaits_outcome: open.report_connected,
    })
}
