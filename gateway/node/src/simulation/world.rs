//! Two nodes, the link between them, and applications at both ends.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::TaskTracker;
use underpass_cla::Class;

use super::application::{Application, Seen};
use super::disk::Disk;
use super::link::Link;
pub use super::node::Running;
use super::node::{HOPS, HUB, Load, Streams, TERMINAL};
use super::plan::{Kill, Plan};
use super::shared::Shared;
use super::tcp::{Census, ModelSocket, Wire, connect};

/// The delay of connections between applications and gateways.
const NEAR: Duration = Duration::from_millis(1);
/// After the last application has gone, everything is over within this.
const SETTLED_IN: Duration = Duration::from_secs(900);
/// How often the nodes are looked at.
const GLANCE: Duration = Duration::from_millis(500);

/// Two nodes at work.
pub struct World {
    plan: Arc<Plan>,
    link: Arc<Link>,
    slots: Arc<[Shared<Option<Running>>; 2]>,
    disks: Mutex<[Option<Disk>; 2]>,
    census: Census,
    applications: TaskTracker,
    outcomes: Mutex<Vec<Outcome>>,
    start: Instant,
}

/// What became of one script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What its client and its origin saw.
    pub seen: [Option<Seen>; 2],
    /// How often the origin was dialled.
    pub dialled: u32,
    /// When the relays at the terminal and the hub ended in order, from the
    /// start.
    pub ended: [Option<Duration>; 2],
}

/// What became of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Report {
    pub outcomes: Vec<Outcome>,
    /// The most that a node had at once.
    pub peak: Load,
    /// Operations that took place between two effects of the last run of a node.
    pub between: u64,
    pub left: Vec<String>,
    /// When nothing was.
    pub lasted: Duration,
}

impl World {
    pub async fn perform(plan: Arc<Plan>) -> Report {
        let disk = || plan.durable.then(Disk::new);
        let world = Arc::new(World {
            link: Link::new(plan.link.clone(), plan.seed),
            slots: Arc::new([Shared::new(None), Shared::new(None)]),
            disks: Mutex::new([disk(), disk()]),
            census: Census::default(),
            applications: TaskTracker::new(),
            outcomes: Mutex::new(vec![Outcome::default(); plan.scripts.len()]),
            start: Instant::now(),
            plan,
        });
        for place in [TERMINAL, HUB] {
            world.start(place, 1);
        }
        let background = world.clone().run_link();
        for number in 0..world.plan.scripts.len() {
            world.applications.spawn(world.clone().client(number));
        }
        let (peak, left) = world.wait_for_the_end().await;
        let lasted = world.start.elapsed();
        drop(background);
        let mut between = 0;
        for slot in world.slots.iter() {
            if let Some(node) = slot.replace(None) {
                between += node.ends.between();
                node.kill();
            }
        }
        world.link.break_all();
        let outcomes = std::mem::take(&mut *world.outcomes.lock().unwrap());
        Report {
            outcomes,
            peak,
            between,
            left,
            lasted,
        }
    }

    fn start(self: &Arc<Self>, place: usize, incarnation: u64) {
        let disk = self.disks.lock().unwrap()[place].clone();
        let plan = &self.plan;
        let (node, streams) = Running::start(place, incarnation, plan, disk.as_ref(), self.start);
        node.spawn(self.clone().serve(node.clone(), streams));
        self.slots[place].replace(Some(node));
    }

    /// Everything that happens to the link and the nodes.
    fn run_link(self: Arc<Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let standbys: &[bool] = match self.plan.link.standby {
            true => &[false, true],
            false => &[false],
        };
        let each = standbys.iter();
        let lanes = each.flat_map(|standby| match self.plan.link.classes {
            0 => vec![None],
            classes => (0..classes)
                .map(|class| Some((Class(class), *standby)))
                .collect(),
        });
        for lane in lanes {
            tasks.spawn(self.link.clone().run_sessions(lane, self.slots.clone()));
        }
        let blocked = self.clone();
        tasks.spawn(async move { blocked.block().await });
        let broken = self.clone();
        tasks.spawn(async move {
            for at in &broken.plan.link.breaks {
                sleep_until(broken.start + Duration::from_millis(*at)).await;
                broken.link.break_one();
            }
        });
        for kill in self.plan.kills.clone() {
            tasks.spawn(self.clone().kill(kill));
        }
        tasks
    }

    async fn block(&self) {
        for blockage in &self.plan.link.blockages {
            let at = self.start + Duration::from_millis(blockage.at);
            sleep_until(at).await;
            self.tell_modems(blockage.told);
            self.link.set_blocked(true);
            sleep_until(at + Duration::from_millis(blockage.lasts)).await;
            self.link.set_blocked(false);
            self.tell_modems(false);
        }
    }

    fn tell_modems(&self, blocked: bool) {
        for (slot, path) in self.slots.iter().zip(HOPS) {
            if let Some(node) = slot.get() {
                node.shell.modem_says(path, blocked);
            }
        }
    }

    async fn kill(self: Arc<Self>, kill: Kill) {
        sleep_until(self.start + Duration::from_millis(kill.at)).await;
        let Some(node) = self.slots[kill.place].replace(None) else {
            return;
        };
        {
            // A killed node writes nothing more.
            let disk = &mut self.disks.lock().unwrap()[kill.place];
            *disk = disk.as_ref().map(Disk::after_kill);
        }
        node.kill();
        self.link.break_all();
        sleep(Duration::from_millis(kill.lasts)).await;
        self.start(kill.place, node.incarnation + 1);
    }

    async fn client(self: Arc<Self>, number: usize) {
        let script = &self.plan.scripts[number];
        sleep(Duration::from_millis(script.begins)).await;
        // While the node is down, its kernel takes no connection.
        let node = self.slots[TERMINAL].wait_for(|node| node).await;
        let (own, gateways) = self.connect(number);
        let world = self.clone();
        node.take_in(number, gateways, move || world.note_end(number, TERMINAL));
        let application = Application::new(own, number as u64, 0);
        let seen = application.perform(&script.parts[0]).await;
        self.outcomes.lock().unwrap()[number].seen[0] = Some(seen);
    }

    /// The hub's way to the origins.
    async fn serve(self: Arc<Self>, node: Running, mut streams: Streams) {
        while let Some(stream) = streams.recv().await {
            let (world, noting) = (self.clone(), self.clone());
            let dial = |number: usize| async move {
                sleep(Duration::from_millis(world.plan.scripts[number].dial)).await;
                let (own, gateways) = world.connect(number);
                let origin = world.clone().origin(number, own);
                world.applications.spawn(origin);
                gateways
            };
            node.serve(stream, dial, move |number| noting.note_end(number, HUB));
        }
    }

    async fn origin(self: Arc<Self>, number: usize, own: ModelSocket) {
        let application = Application::new(own, number as u64, 1);
        let part = &self.plan.scripts[number].parts[1];
        let seen = application.perform(part).await;
        let outcome = &mut self.outcomes.lock().unwrap()[number];
        // A hub that was killed may dial again.
        outcome.dialled += 1;
        outcome.seen[1].get_or_insert(seen);
    }

    fn note_end(&self, number: usize, place: usize) {
        let at = self.start.elapsed();
        self.outcomes.lock().unwrap()[number].ended[place] = Some(at);
    }

    fn connect(&self, number: usize) -> (ModelSocket, ModelSocket) {
        // Small ones and large ones.
        let buffer = [8 << 10, 64 << 10, 512 << 10][number % 3];
        let wire = Wire {
            delays: [NEAR; 2],
            send_buffer: buffer,
            receive_buffers: [buffer; 2],
            blockages: Arc::new([]),
        };
        connect(wire, &self.census)
    }

    /// Waits until nothing is left of the connections; otherwise returns what is left. While there
    /// are streams, origins may still be dialled.
    async fn wait_for_the_end(&self) -> (Load, Vec<String>) {
        let mut until = Instant::now() + SETTLED_IN;
        let mut peak = Load::default();
        loop {
            for node in self.slots.iter().filter_map(Shared::get) {
                peak = peak.max(node.load());
                let faults = node.ends.faults();
                if !faults.is_empty() {
                    return (peak, faults);
                }
            }
            let left = self.left();
            if !self.applications.is_empty() {
                until = Instant::now() + SETTLED_IN;
            } else if left.is_empty() || Instant::now() > until {
                return (peak, left);
            }
            sleep(GLANCE).await;
        }
    }

    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for slot in self.slots.iter() {
            match slot.get() {
                Some(node) => left.extend(node.left()),
                None => left.push("a node is down".to_owned()),
            }
        }
        if self.census.alive() > 0 {
            left.push(format!("{} connections", self.census.alive()));
        }
        left
    }
}
