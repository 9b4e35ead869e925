//! Both sides over a simulated link, in virtual time.

mod bounds;
mod claims;
mod hostile;
mod link;
