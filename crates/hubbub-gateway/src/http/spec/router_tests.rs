//! The router and the table of operations say the same.

use std::collections::BTreeSet;

use hubbub_core::limits::Limits;

use super::operations;

/// Paths of pages and their files, which are no part of the API.
const PAGES: &[&str] = &["/", "/web/{}", "/docs"];

/// A method and a path whose parameters are `{}`.
type Route = (String, String);

/// The arms of the router's one `match`, read from its source: `(["v1", "rooms", room], &Method::GET) => …`. Arms for
/// any method (`_`) refuse, or hand a whole subtree to somebody else, and are not routes.
fn routes_of(source: &str) -> BTreeSet<Route> {
    let (_, arms) = source.split_once("match (segments, &method) {").expect("the router is one match");
    let (arms, _) = arms.split_once("\n    };").expect("the match ends");
    let mut routes = BTreeSet::new();
    let mut rest = arms;
    while let Some((before, after)) = rest.split_once("=>") {
        // The pattern begins behind the arm before; paths stand in brackets, methods behind the last of them.
        let pattern = before.rsplit_once("\n        (").map_or(before, |(_, pattern)| pattern);
        let methods: Vec<&str> =
            pattern.split("Method::").skip(1).map(word).filter(|m| *m != "HEAD").collect();
        for path in pattern.split('[').skip(1).filter_map(|part| part.split_once(']')) {
            for path in expand(path.0) {
                routes.extend(methods.iter().map(|method| (method.to_lowercase(), path.clone())));
            }
        }
        rest = after;
    }
    routes
}

fn word(text: &str) -> &str {
    text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default()
}

/// `"v1", "rooms", _, "events" | "presence"` → both paths.
fn expand(pattern: &str) -> Vec<String> {
    let mut paths = vec![String::new()];
    for (index, segment) in pattern.split(',').map(str::trim).enumerate() {
        let choices: Vec<String> = match segment {
            // Any prefix: documented without one.
            ".." if index == 0 => continue,
            // The rest of a parameter that may hold slashes.
            ".." if paths.iter().all(|path| path.ends_with("{}")) => continue,
            // A named rest is a parameter that may hold slashes.
            ".." => vec!["…".into()],
            literal if literal.starts_with('"') => {
                literal.split('|').map(|one| one.trim().trim_matches('"').to_owned()).collect()
            }
            _ => vec!["{}".into()],
        };
        let longer = |path: &String| choices.iter().map(|c| format!("{path}/{c}")).collect::<Vec<_>>();
        paths = paths.iter().flat_map(longer).collect();
    }
    paths
}

fn documented() -> BTreeSet<Route> {
    let route = |operation: super::Operation| {
        let segments = operation.path.split('/');
        let path: Vec<&str> = segments.map(|s| if s.starts_with('{') { "{}" } else { s }).collect();
        (operation.method.to_owned(), path.join("/"))
    };
    operations::all(&Limits::default()).into_iter().map(route).collect()
}

#[test]
fn the_router_is_documented() {
    let mut routes = routes_of(include_str!("../mod.rs"));
    routes.retain(|(_, path)| !PAGES.contains(&path.as_str()));
    assert!(routes.len() > 10, "the source is read: {routes:?}");
    let documented = documented();
    let missing: Vec<_> = routes.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&routes).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "spec/operations and the router differ: not documented {missing:?}, not routed {gone:?}"
    );
}

#[test]
fn patterns_are_read() {
    let source = r#"match (segments, &method) {
        ([""], &Method::GET | &Method::HEAD) => page(&request),
        (["v1", "rooms", room, "a" | "b"], &Method::PUT) => rooms::change(gateway, room, request).await,
        ([.., "health"] | [.., "health", "ready"], &Method::GET | &Method::HEAD) => {
            health::ready(gateway).await
        }
        (["v1", rest @ ..], &Method::POST) => other(rest),
        (["v1", ..], &Method::PUT) => refuse(),
        (["v1", "keys", _, ..], &Method::PUT) => put(&path),
        (["v1", "rooms", _], _) => Err(not_allowed("GET")),
        _ => Err(nothing),
    };"#;
    let found: Vec<String> =
        routes_of(source).into_iter().map(|(method, path)| format!("{method} {path}")).collect();
    let wanted = [
        "get /",
        "get /health",
        "get /health/ready",
        "post /v1/{}",
        "put /v1/keys/{}",
        "put /v1/rooms/{}/a",
        "put /v1/rooms/{}/b",
        "put /v1/…",
    ];
    assert_eq!(found, wanted);
}
