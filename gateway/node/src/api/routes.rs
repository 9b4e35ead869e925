//! Routes that cannot be added without the role that they need.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::ApiState;
use super::auth;
use crate::config::ApiRole;

/// The largest body a request may have, bytes, unless its path says otherwise.
pub(super) const BODY_BYTES: usize = 64 << 10;

/// Routes in the making, and the role that each needs.
#[derive(Default)]
pub struct Routes {
    paths: BTreeMap<&'static str, MethodRouter<Arc<ApiState>>>,
    listed: Vec<(&'static str, &'static str, ApiRole)>,
}

macro_rules! methods {
    ($($name:ident $filter:ident),*) => {
        $(
            /// Adds a route for callers of `role` and above.
            pub fn $name<H, T>(self, role: ApiRole, path: &'static str, handler: H) -> Routes
            where
                H: Handler<T, Arc<ApiState>>,
                T: 'static,
            {
                let listed = (stringify!($filter), path, role);
                self.add(listed, on(MethodFilter::$filter, handler))
            }
        )*
    };
}

impl Routes {
    methods!(get GET, put PUT, post POST, patch PATCH, delete DELETE);

    fn add(
        mut self,
        listed: (&'static str, &'static str, ApiRole),
        handler: MethodRouter<Arc<ApiState>>,
    ) -> Routes {
        let (_, path, role) = listed;
        let guarded = handler.route_layer(from_fn_with_state(role, auth::require));
        let others = self.paths.remove(path).unwrap_or_default();
        self.paths.insert(path, others.merge(guarded));
        self.listed.push(listed);
        self
    }

    /// Lets the bodies of requests to `path` be larger than others.
    pub fn body_bytes(mut self, path: &'static str, most: usize) -> Routes {
        if let Some(methods) = self.paths.remove(path) {
            let methods = methods.layer(DefaultBodyLimit::max(most));
            self.paths.insert(path, methods);
        }
        self
    }

    /// Method, path and least role of each.
    #[cfg(test)]
    pub fn listed(&self) -> &[(&'static str, &'static str, ApiRole)] {
        &self.listed
    }

    /// What serves them.
    pub fn into_router(self) -> Router<Arc<ApiState>> {
        let routes = self.paths.into_iter();
        routes
            .fold(Router::new(), |router, (path, methods)| {
                router.route(path, methods)
            })
            .layer(DefaultBodyLimit::max(BODY_BYTES))
    }
}
