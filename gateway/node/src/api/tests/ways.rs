//! The routes of bundles to a node.

use super::*;

#[tokio::test]
async fn ways_to_nodes_of_both_schemes_are_told() {
    let routes = "[[route]]\nnodes = \"dtn://rover/**\"\nvia = 1\n\
                  [[route]]\nnodes = \"dtn:**\"\nvia = 1\n";
    for (routes, path, by, via, node_id) in [
        (routes, "rover", "route", json!(1), "dtn://rover/"),
        (
            routes,
            "other",
            "route-to-several",
            json!(1),
            "dtn://other/",
        ),
        ("", "rover", "nobody", json!(null), "dtn://rover/"),
        (routes, "dtn:rover", "route", json!(1), "dtn://rover/"),
        (routes, "dtn:1", "route-to-several", json!(1), "dtn://1/"),
        (routes, "1", "neighbour", json!(1), "ipn:1.0"),
        (routes, "10", "this-node", json!(null), "ipn:10.0"),
    ] {
        let world = World::with_paths(tempfile::tempdir().unwrap(), routes);
        let way = world.get(&format!("/v1/routes/{path}")).await;
        let told = (&way["by"], &way["via"], &way["node_id"]);
        assert_eq!(told, (&json!(by), &via, &json!(node_id)), "{path}");
        assert_eq!(way["node"], json!(path.parse::<u64>().ok()));
    }
}

#[tokio::test]
async fn what_is_no_node_is_told() {
    let world = World::new();
    for path in ["0", "none", "dtn:none", "a%20b", "dtn%3A%2F%2Frover%2F"] {
        let path = format!("/v1/routes/{path}");
        let answer = world.ask("GET", &path, Body::empty()).await;
        answer.is_problem(422);
    }
}
