//! Runs the mailbox and the desk on a thread of their own, since the mailbox may wait for
//! the disk.
//!
//! Calls that come in during a commit are handled together and committed once. If the
//! mailbox fails, the thread tries again: until then the new bundles stay in memory, and
//! their custodians are not told.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc as calls};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::timeout_at;
use underpass_bundle::wire::Eid;
use underpass_bundle::{Applications, Delivery};
use underpass_payloads::{PayloadFile, Payloads};

use crate::desk::{ClientId, Desk, Item, Output};
use crate::mailbox::{FILE_RECORD, Mailbox, MailboxError, Stored};
use crate::wire::{ErrorCode, Report, Reported};

/// The most calls that are committed together.
const TOGETHER: usize = 64;
/// The pause before a failed commit is tried again.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// How often the mailbox's clock is saved while bundles wait: a crash lengthens their
/// lifetimes by no more than this.
const SAVE_CLOCK_AFTER: Duration = Duration::from_secs(60);
/// Status reports that wait for one client; more are dropped.
const WAITING_REPORTS: usize = 256;
/// Status reports that wait for the thread, for instance while its disk is full. More are
/// dropped, since anybody may send them.
const UNREAD_REPORTS: usize = 4096;

/// Called with a bundle's ticket once the bundle is stored safely.
pub type Confirm = Box<dyn Fn(u64) + Send>;

impl Report {
    /// The report in an event of the bundle node. None if the event is not a status
    /// report on a bundle from one of this node's endpoints, for which `own_service`
    /// gives the service: anybody may name this node as report-to for bundles of others.
    pub fn of(
        told: &underpass_bundle::Event,
        own_service: impl Fn(&Eid) -> Option<u64>,
    ) -> Option<Report> {
        let underpass_bundle::Event::StatusReport { reporter, report } = told else {
            return None;
        };
        let service = own_service(&report.source_node)?;
        let kinds = [
            Reported::Received,
            Reported::Forwarded,
            Reported::Delivered,
            Reported::Deleted,
        ];
        let items = report.status_information.iter().zip(kinds);
        let asserted: Vec<_> = items.filter(|(item, _)| item.asserted).collect();
        let timed = asserted.iter().find(|(item, _)| item.status_requested);
        Some(Report {
            service,
            reporter: reporter.to_string(),
            time_ms: report.timestamp.dtntime(),
            sequence: report.timestamp.seqno(),
            at_ms: timed.map(|(item, _)| item.time).filter(|at| *at > 0),
            events: asserted.into_iter().map(|(_, kind)| kind).collect(),
            reason: report.report_reason,
        })
    }
}

enum Call {
    Arrived(Delivery),
    Report(Report),
    Connect(ClientId, Outlets),
    Register(
        ClientId,
        Option<u64>,
        oneshot::Sender<Result<u64, ErrorCode>>,
    ),
    Acknowledge(ClientId, u64, OwnedSemaphorePermit),
    Disconnect(ClientId),
    Close,
}

/// Where a client's bundles and reports go; the client's window bounds the bundles.
struct Outlets {
    bundles: mpsc::UnboundedSender<(u64, Stored)>,
    reports: mpsc::Sender<Report>,
}

/// What a client's connection reads from.
pub(crate) struct Inlets {
    pub bundles: mpsc::UnboundedReceiver<(u64, Stored)>,
    pub reports: mpsc::Receiver<Report>,
}

/// A handle of the thread; any thread may call it.
#[derive(Clone)]
pub struct Service {
    calls: calls::Sender<Call>,
    applications: Arc<Applications>,
    shared: Arc<Shared>,
}

struct Shared {
    /// Bundles that have come and are not yet confirmed.
    unconfirmed: AtomicUsize,
    /// Status reports that wait for the thread.
    unread_reports: AtomicUsize,
    next_client: AtomicU64,
    /// Signals that a client has disconnected.
    released: Notify,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Service {
    /// Opens the mailbox and starts the thread. The bundles that wait in it are counted
    /// in `applications`.
    ///
    /// # Errors
    /// When the mailbox cannot be opened, or the thread cannot be started.
    pub fn start(
        path: &Path,
        applications: Arc<Applications>,
        payloads: Option<&Arc<Payloads>>,
        confirm: Confirm,
    ) -> Result<Service, MailboxError> {
        let now = Instant::now();
        let mailbox = Mailbox::open(path, now)?;
        let (files, missing) = take_up(&mailbox, payloads)?;
        let mut desk = Desk::default();
        for (item, node) in mailbox.items()? {
            applications.restore(item.service, node, item.bytes);
            match missing.contains(&item.number) {
                true => desk.keep(item),
                false => desk.arrived(item),
            }
        }
        if desk.count() > 0 {
            tracing::info!(bundles = desk.count(), "bundles wait for applications");
        }
        let (sender, receiver) = calls::channel();
        let shared = Arc::new(Shared {
            unconfirmed: AtomicUsize::new(0),
            unread_reports: AtomicUsize::new(0),
            next_client: AtomicU64::new(0),
            released: Notify::new(),
            thread: Mutex::default(),
        });
        let worker = Worker {
            mailbox,
            desk,
            applications: applications.clone(),
            confirm,
            shared: shared.clone(),
            outlets: HashMap::new(),
            files,
            unstored: Vec::new(),
            done: Vec::new(),
            saved: now,
        };
        let thread = std::thread::Builder::new()
            .name("applications".to_owned())
            .spawn(move || worker.run(&receiver))?;
        *shared.thread.lock().unwrap() = Some(thread);
        Ok(Service {
            calls: sender,
            applications,
            shared,
        })
    }

    /// Takes a bundle for an application; its room must have been reserved.
    pub fn arrived(&self, delivery: Delivery) {
        self.shared.unconfirmed.fetch_add(1, Ordering::AcqRel);
        self.call(Call::Arrived(delivery));
    }

    /// Takes a status report.
    pub fn report(&self, report: Report) {
        let unread = &self.shared.unread_reports;
        if unread.fetch_add(1, Ordering::AcqRel) >= UNREAD_REPORTS {
            unread.fetch_sub(1, Ordering::AcqRel);
            tracing::debug!("too many status reports wait for the applications");
            return;
        }
        self.call(Call::Report(report));
    }

    /// Whether all bundles that have come are stored and confirmed.
    pub fn is_idle(&self) -> bool {
        self.shared.unconfirmed.load(Ordering::Acquire) == 0
    }

    /// Ends the thread and closes the mailbox, so that another process may open it. Later
    /// calls have no effect. Blocks.
    pub fn close(&self) {
        self.call(Call::Close);
        let thread = self.shared.thread.lock().unwrap().take();
        if let Some(thread) = thread {
            // A panic of the thread ends the process.
            let _ = thread.join();
        }
    }

    pub(crate) fn connect(&self) -> (ClientId, Inlets) {
        let id = ClientId(self.shared.next_client.fetch_add(1, Ordering::Relaxed));
        let (bundle_sender, bundles) = mpsc::unbounded_channel();
        let (report_sender, reports) = mpsc::channel(WAITING_REPORTS);
        let outlets = Outlets {
            bundles: bundle_sender,
            reports: report_sender,
        };
        self.call(Call::Connect(id, outlets));
        (id, Inlets { bundles, reports })
    }

    pub(crate) fn disconnect(&self, client: ClientId) {
        self.call(Call::Disconnect(client));
        // A registration that this wakes comes to the thread after the call.
        self.shared.released.notify_waiters();
    }

    /// Gives a client a service, or any free one, once no other client has it. Waits for that until
    /// `until`, since the end of another's connection may not have been seen yet.
    pub(crate) async fn register_until(
        &self,
        until: tokio::time::Instant,
        client: ClientId,
        service: Option<u64>,
    ) -> Result<u64, ErrorCode> {
        loop {
            // Made before the attempt, so that no client's end in between is missed.
            let released = self.shared.released.notified();
            let registered = self.register(client, service).await;
            if registered != Err(ErrorCode::Taken)
                || tokio::time::Instant::now() >= until
                || timeout_at(until, released).await.is_err()
            {
                return registered;
            }
        }
    }

    async fn register(&self, client: ClientId, service: Option<u64>) -> Result<u64, ErrorCode> {
        if service.is_some_and(|service| !self.applications.keeps(service)) {
            return Err(ErrorCode::NotAllowed);
        }
        let (sender, answer) = oneshot::channel();
        self.call(Call::Register(client, service, sender));
        answer.await.unwrap_or(Err(ErrorCode::Closing))
    }

    /// `permit` bounds how many of a client's acknowledgements wait.
    pub(crate) fn acknowledge(&self, client: ClientId, number: u64, permit: OwnedSemaphorePermit) {
        self.call(Call::Acknowledge(client, number, permit));
    }

    fn call(&self, call: Call) {
        // Fails once the service is closed: another process may have the mailbox by then.
        let _ = self.calls.send(call);
    }
}

/// The bundles that were stored, in order, with none for each duplicate; and the bundles
/// that were forgotten, as [`Mailbox::remove`] returns them.
type Changes = (Vec<Option<Item>>, Vec<(u64, u64, u64)>);

/// The payloads of waiting bundles by bundle number, and the numbers of bundles whose
/// payload is missing.
type TakenUp = (HashMap<u64, Arc<PayloadFile>>, BTreeSet<u64>);

/// Takes up the payloads that an earlier run has left on disk, and deletes files that
/// belong to no bundle. Returns also the bundles whose payloads are missing.
fn take_up(mailbox: &Mailbox, payloads: Option<&Arc<Payloads>>) -> Result<TakenUp, MailboxError> {
    let (mut files, mut missing) = (HashMap::new(), BTreeSet::new());
    let mut names = BTreeSet::new();
    for named in mailbox.files()? {
        let disabled = || std::io::Error::other("payloads.quota_bytes is 0");
        let file = payloads.ok_or_else(disabled).and_then(|payloads| {
            payloads.take_up(&named.name, named.node, named.bytes, FILE_RECORD)
        });
        match file {
            Ok(file) => drop(files.insert(named.number, file)),
            Err(error) => {
                tracing::error!(%error, number = named.number, "a bundle waits without its payload");
                missing.insert(named.number);
            }
        }
        names.insert(named.name);
    }
    if let Some(payloads) = payloads {
        payloads.keep_only(&names)?;
    }
    Ok((files, missing))
}

struct Worker {
    mailbox: Mailbox,
    desk: Desk,
    applications: Arc<Applications>,
    confirm: Confirm,
    shared: Arc<Shared>,
    outlets: HashMap<ClientId, Outlets>,
    /// Payloads on disk, by their bundles' numbers.
    files: HashMap<u64, Arc<PayloadFile>>,
    /// Bundles to store.
    unstored: Vec<Delivery>,
    /// Numbers of bundles to forget.
    done: Vec<u64>,
    /// When the clock was last saved.
    saved: Instant,
}

impl Worker {
    fn run(mut self, calls: &calls::Receiver<Call>) {
        loop {
            let first = match calls.recv_timeout(self.wait()) {
                Ok(call) => Some(call),
                Err(calls::RecvTimeoutError::Timeout) => None,
                Err(calls::RecvTimeoutError::Disconnected) => return,
            };
            let more = std::iter::from_fn(|| calls.try_recv().ok());
            let mut closing = false;
            for call in first.into_iter().chain(more.take(TOGETHER)) {
                closing |= matches!(call, Call::Close);
                self.take(call);
            }
            self.desk.expire(self.mailbox.clock_ms(Instant::now()));
            self.carry_out();
            self.store();
            self.carry_out();
            if closing {
                return;
            }
        }
    }

    fn wait(&self) -> Duration {
        let Some(at_ms) = self.desk.next_expiry_ms() else {
            return SAVE_CLOCK_AFTER;
        };
        let now_ms = self.mailbox.clock_ms(Instant::now());
        Duration::from_millis(at_ms.saturating_sub(now_ms)).min(SAVE_CLOCK_AFTER)
    }

    fn take(&mut self, call: Call) {
        match call {
            Call::Arrived(delivery) => self.unstored.push(delivery),
            Call::Report(report) => {
                self.shared.unread_reports.fetch_sub(1, Ordering::AcqRel);
                self.pass_report(report);
            }
            Call::Connect(client, outlets) => {
                self.desk.connect(client);
                self.outlets.insert(client, outlets);
            }
            Call::Register(client, service, answer) => {
                let registered = self.register(client, service);
                // A client that has disconnected wants no answer.
                let _ = answer.send(registered);
            }
            Call::Acknowledge(client, number, permit) => {
                self.desk.acknowledge(client, number);
                drop(permit);
            }
            Call::Disconnect(client) => {
                self.desk.disconnect(client);
                self.outlets.remove(&client);
            }
            Call::Close => {}
        }
    }

    fn register(&mut self, client: ClientId, service: Option<u64>) -> Result<u64, ErrorCode> {
        let service = match service {
            Some(service) => service,
            None => {
                let mut all = self.applications.highest_first();
                let free = all.find(|service| self.desk.is_free(*service));
                free.ok_or(ErrorCode::Taken)?
            }
        };
        self.desk.register(client, service)?;
        Ok(service)
    }

    fn pass_report(&self, report: Report) {
        let client = self.desk.client_of(report.service);
        let outlets = client.and_then(|client| self.outlets.get(&client));
        if outlets.is_none_or(|outlets| outlets.reports.try_send(report).is_err()) {
            tracing::debug!("no application takes this status report");
        }
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.desk.poll() {
            match output {
                Output::Deliver { client, number } => self.deliver(client, number),
                Output::Forget { number, expired } => {
                    if expired {
                        tracing::info!(number, "a bundle outlived its lifetime in the mailbox");
                    }
                    self.done.push(number);
                }
            }
        }
    }

    fn deliver(&self, client: ClientId, number: u64) {
        let outlets = self.outlets.get(&client);
        match (outlets, self.mailbox.load(number)) {
            // Fails if the client has disconnected; that call is on its way.
            (Some(outlets), Ok(Some(stored))) => {
                let file = self.files.get(&number).cloned();
                drop(outlets.bundles.send((number, Stored { file, ..stored })));
            }
            (_, Ok(_)) => {}
            (_, Err(error)) => tracing::error!(%error, number, "a bundle cannot be read"),
        }
    }

    /// Commits all changes, and tries again until that succeeds.
    fn store(&mut self) {
        let now = Instant::now();
        let clock_due = self.desk.count() > 0 && now - self.saved >= SAVE_CLOCK_AFTER;
        if self.unstored.is_empty() && self.done.is_empty() && !clock_due {
            return;
        }
        let (added, removed) = loop {
            match self.try_store(Instant::now()) {
                Ok(changes) => break changes,
                Err(error) => {
                    tracing::error!(%error, "bundles for applications cannot be stored");
                    self.mailbox.roll_back();
                    std::thread::sleep(FAILURE_PAUSE);
                }
            }
        };
        self.saved = now;
        for (delivery, item) in self.unstored.drain(..).zip(added) {
            let (node, bytes) = (delivery.counted_node(), delivery.payload.len() as u64);
            self.applications.stored(node, bytes);
            match item {
                Some(item) => {
                    let file = delivery.file.map(|file| (item.number, file));
                    self.files.extend(file);
                    self.desk.arrived(item);
                }
                None => {
                    self.applications.free(delivery.service, node, bytes);
                }
            }
            if let Some(ticket) = delivery.ticket {
                (self.confirm)(ticket);
            }
            self.shared.unconfirmed.fetch_sub(1, Ordering::AcqRel);
        }
        for number in self.done.drain(..) {
            let file = self.files.remove(&number);
            if let Some(Err(error)) = file.map(|file| file.delete(FILE_RECORD)) {
                tracing::error!(%error, number, "a payload cannot be deleted");
            }
        }
        for (service, node, bytes) in removed {
            self.applications.free(service, node, bytes);
        }
    }

    fn try_store(&mut self, now: Instant) -> Result<Changes, MailboxError> {
        let mut added = Vec::new();
        for delivery in &self.unstored {
            added.push(self.mailbox.add(now, delivery)?);
        }
        let mut removed = Vec::new();
        for number in &self.done {
            removed.extend(self.mailbox.remove(*number)?);
        }
        self.mailbox.commit(now)?;
        Ok((added, removed))
    }
}

#[cfg(test)]
pub(crate) mod tests;
