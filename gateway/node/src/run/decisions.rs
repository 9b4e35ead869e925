//! Reports changes of paths to the operators who follow flows.

use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use underpass_edge::flows::{Decisions, PathNews};
use underpass_engine::LinkChange;

use crate::shell::{ClassMove, LinkEvent, Shell};

/// Reports events of links and moves of classes. Runs until dropped.
pub(super) async fn follow(shell: Arc<Shell>, decisions: Arc<Decisions>) {
    let (mut links, mut moves) = (shell.link_events(), shell.class_moves());
    loop {
        let news = tokio::select! {
            event = links.recv() => event.map(of_link),
            moved = moves.recv() => moved.map(|moved| Some(of_move(moved))),
        };
        match news {
            Ok(Some(news)) => decisions.path_changed(news),
            // If there are too many changes at once, only the latest are reported.
            Ok(None) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

fn of_link(event: LinkEvent) -> Option<PathNews> {
    let (change, reason) = match event.change {
        LinkChange::Blocked(source) => ("blocked", source.name()),
        LinkChange::Free(_) => ("free", "nobody says that it is blocked"),
        LinkChange::Source(_) | LinkChange::PlanContradicted(_) => return None,
    };
    Some(PathNews {
        path: event.path,
        change,
        reason,
        moved: None,
    })
}

fn of_move(moved: ClassMove) -> PathNews {
    PathNews {
        path: moved.from,
        change: "moved",
        reason: moved.reason.name(),
        moved: Some((moved.class, moved.to)),
    }
}
