use bp7::administrative_record::{BundleStatusItem, StatusReport};
use bytes::Bytes;
use underpass_bundle::wire::{Eid, ipn};
use underpass_bundle::{Agent, Amount, Config, Event as Told, Send, named_service};

use super::*;

pub fn applications(bundles: u64) -> Arc<Applications> {
    let most = Amount {
        bytes: 1 << 24,
        bundles,
    };
    let named = named_service("incoming");
    let all = Applications::new(vec![1..=127, named..=named], [80].into(), Some(7), most);
    Arc::new(all)
}

/// A bundle as an agent delivers it.
pub fn delivery(source: Eid, sequence: u64, payload: &'static [u8]) -> Delivery {
    let mut config = Config::new(1, 1);
    config.services.insert(9);
    let mut agent = Agent::new(config);
    let now = Instant::now();
    let send = Send {
        lifetime: Some(Duration::from_secs(60)),
        custody: false,
        ..Send::new(
            ipn(1, 9),
            9,
            underpass_cla::Class(2),
            vec![Bytes::from_static(payload)],
        )
    };
    for _ in 0..=sequence {
        agent.send(now, send.clone()).unwrap();
    }
    let told = std::iter::from_fn(|| agent.poll_event());
    let deliveries = told.filter_map(|event| match event {
        Told::Deliver(delivery) => Some(delivery),
        _ => None,
    });
    let last = deliveries.last().unwrap();
    Delivery { source, ..last }
}

async fn bundle(inlets: &mut Inlets) -> (u64, Stored) {
    let waiting = tokio::time::timeout(Duration::from_secs(60), inlets.bundles.recv());
    waiting.await.expect("no bundle comes").unwrap()
}

fn permit() -> OwnedSemaphorePermit {
    let permits = Arc::new(tokio::sync::Semaphore::new(1));
    permits.try_acquire_owned().unwrap()
}

#[tokio::test]
async fn a_bundle_is_confirmed_once_it_is_stored_and_outlives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("applications.sqlite");
    let applications = applications(100);
    let (confirmed, mut tickets) = mpsc::unbounded_channel();
    let confirm = move |ticket| confirmed.send(ticket).unwrap();
    let service = Service::start(&path, applications.clone(), None, Box::new(confirm)).unwrap();
    assert!(applications.reserve(9, 10, 5));
    let first = delivery(ipn(10, 40), 0, b"first");
    let first = Delivery {
        ticket: Some(3),
        ..first
    };
    service.arrived(first);
    assert_eq!(tickets.recv().await, Some(3));
    service.close();
    // The next process.
    let all = self::applications(100);
    let service = Service::start(&path, all.clone(), None, Box::new(|_| {})).unwrap();
    assert_eq!(all.waiting().bundles, 1);
    let (client, mut inlets) = service.connect();
    assert_eq!(service.register(client, Some(9)).await, Ok(9));
    let (number, stored) = bundle(&mut inlets).await;
    assert_eq!(&stored.payload[..], b"first");
    // The client disconnects without an acknowledgement: the bundle is delivered again.
    service.disconnect(client);
    let (client, mut inlets) = service.connect();
    assert_eq!(service.register(client, Some(9)).await, Ok(9));
    assert_eq!(bundle(&mut inlets).await.0, number);
    service.acknowledge(client, number, permit());
    service.close();
    assert_eq!(all.waiting(), Amount::default());
}

#[tokio::test]
async fn a_payload_on_disk_outlives_the_process_and_what_nobody_has_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("applications.sqlite");
    let limits = underpass_payloads::Limits {
        quota_bytes: 1000,
        payload_bytes: 1000,
        leave_free_bytes: 0,
    };
    let open = || Payloads::open(&folder.path().join("payloads"), limits).unwrap();
    let written = |payloads: &Arc<Payloads>, content: &[u8]| {
        let mut writer = payloads
            .reserve(10, 100)
            .unwrap()
            .begin(content.len() as u64);
        writer.as_mut().unwrap().write(content).unwrap();
        writer.unwrap().finish().unwrap()
    };
    let payloads = open();
    let service = Service::start(&path, applications(100), Some(&payloads), Box::new(|_| {}));
    let service = service.unwrap();
    let arrived = delivery(ipn(10, 40), 0, b"");
    service.arrived(Delivery {
        file: Some(written(&payloads, b"long")),
        ..arrived.clone()
    });
    // A duplicate, as a custodian may send it.
    service.arrived(Delivery {
        file: Some(written(&payloads, b"long")),
        ..arrived
    });
    service.close();
    // A process killed between the two steps leaves a file that no bundle has.
    written(&payloads, b"left").save(FILE_RECORD).unwrap();
    let files = || std::fs::read_dir(folder.path().join("payloads")).unwrap();
    assert_eq!(files().count(), 2);
    // The next process.
    let payloads = open();
    let service = Service::start(&path, applications(100), Some(&payloads), Box::new(|_| {}));
    let service = service.unwrap();
    assert_eq!(files().count(), 1);
    assert_eq!(payloads.used(), (1, 4));
    let (client, mut inlets) = service.connect();
    assert_eq!(service.register(client, Some(9)).await, Ok(9));
    let (number, stored) = bundle(&mut inlets).await;
    let mut content = [0; 4];
    stored.file.unwrap().read_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"long");
    service.acknowledge(client, number, permit());
    service.close();
    assert_eq!(files().count(), 0);
    assert_eq!(payloads.used(), (0, 0));
}

#[tokio::test]
async fn a_service_of_another_or_of_the_node_itself_is_not_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("applications.sqlite");
    let service = Service::start(&path, applications(100), None, Box::new(|_| {})).unwrap();
    let (one, _inlets) = service.connect();
    let (two, _others) = service.connect();
    assert_eq!(service.register(one, Some(9)).await, Ok(9));
    assert_eq!(service.register(two, Some(9)).await, Err(ErrorCode::Taken));
    for reserved in [0, 7, 80, 128] {
        let refused = service.register(two, Some(reserved)).await;
        assert_eq!(refused, Err(ErrorCode::NotAllowed), "{reserved}");
    }
    assert_eq!(service.register(two, None).await, Ok(127));
    service.disconnect(one);
    assert_eq!(service.register(two, Some(9)).await, Ok(9));
    service.close();
}

#[test]
fn a_report_on_another_nodes_bundle_is_none_of_ours() {
    let told = |node| Told::StatusReport {
        reporter: ipn(10, 0),
        report: StatusReport {
            status_information: vec![BundleStatusItem {
                asserted: true,
                time: 0,
                status_requested: false,
            }],
            report_reason: 0,
            source_node: ipn(node, 9),
            timestamp: bp7::CreationTimestamp::with_time_and_seq(1_000, 2),
            frag_offset: 0,
            frag_len: 0,
        },
    };
    let config = Config::new(1, 1);
    let own = |endpoint: &Eid| config.own_service(endpoint);
    let ours = Report::of(&told(1), own).unwrap();
    assert_eq!((ours.service, ours.time_ms, ours.sequence), (9, 1_000, 2));
    assert_eq!(ours.events, [Reported::Received]);
    assert_eq!(Report::of(&told(11), own), None);
}

#[tokio::test]
async fn reports_go_to_the_application_that_sent_the_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("applications.sqlite");
    let service = Service::start(&path, applications(100), None, Box::new(|_| {})).unwrap();
    let (client, mut inlets) = service.connect();
    service.register(client, Some(9)).await.unwrap();
    let report = |service| Report {
        service,
        reporter: "ipn:1.0".to_owned(),
        time_ms: 1,
        sequence: 2,
        events: vec![Reported::Delivered],
        at_ms: Some(5),
        reason: 0,
    };
    service.report(report(10));
    service.report(report(9));
    assert_eq!(inlets.reports.recv().await, Some(report(9)));
    // This holds however many reports have come before.
    for _ in 0..4 * UNREAD_REPORTS {
        service.report(report(10));
    }
    service.register(client, Some(11)).await.unwrap();
    service.report(report(9));
    let told = tokio::time::timeout(Duration::from_secs(60), inlets.reports.recv());
    assert_eq!(told.await.unwrap(), Some(report(9)));
    service.close();
}

#[test]
fn reports_that_the_thread_does_not_come_to_are_bounded() {
    let (calls, waiting) = calls::channel();
    let service = Service {
        calls,
        applications: applications(100),
        shared: Arc::new(Shared {
            unconfirmed: AtomicUsize::new(0),
            unread_reports: AtomicUsize::new(0),
            next_client: AtomicU64::new(0),
            released: Notify::new(),
            thread: Mutex::default(),
        }),
    };
    let report = Report {
        service: 9,
        reporter: "ipn:10.0".to_owned(),
        time_ms: 1,
        sequence: 2,
        events: vec![Reported::Delivered],
        at_ms: None,
        reason: 0,
    };
    for _ in 0..2 * UNREAD_REPORTS {
        service.report(report.clone());
    }
    assert_eq!(waiting.try_iter().count(), UNREAD_REPORTS);
}
