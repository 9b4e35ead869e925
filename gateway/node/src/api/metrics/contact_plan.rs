//! The contact plan: how much of it there is, and what it says at present.

use std::fmt;

use super::super::ApiState;
use super::families::Families;

pub fn encode(state: &ApiState, families: &mut Families<'_>) -> fmt::Result {
    let figures = state.contacts.figures();
    let figures = figures.as_ref();
    families.gauge(
        "contact_plan_contacts",
        "Contacts in the contact plan that is followed",
        figures.map(|figures| (vec![], figures.contacts as u64)),
    )?;
    families.gauge(
        "contact_plan_nodes",
        "Nodes in the contact plan beside this one",
        figures.map(|figures| (vec![], figures.nodes as u64)),
    )?;
    families.gauge(
        "contact_plan_reached_nodes",
        "Of these, those with a way at present",
        figures.map(|figures| (vec![], figures.reached as u64)),
    )?;
    families.counter(
        "contact_plan_searches",
        "Searches for routes since the contact plan was taken",
        figures.map(|figures| (vec![], figures.searches)),
    )?;
    families.counter(
        "contact_plan_changes",
        "Changes of ways by the contact plan",
        figures.map(|figures| (vec![], figures.changes)),
    )?;
    let neighbours = figures.into_iter().flat_map(|figures| &figures.neighbours);
    families.gauge(
        "contact_open",
        "Whether the contact plan has a contact with a neighbour now",
        neighbours.map(|contact| {
            let neighbour = contact.neighbour.to_string();
            (vec![("neighbour", neighbour)], u64::from(contact.open))
        }),
    )
}
