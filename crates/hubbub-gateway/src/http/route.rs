//! Which endpoints a path leads to.
//!
//! They are found by `matchit`. What it does not find is compared with every template in turn: paths with a prefix,
//! which it cannot express, and empty segments, which it refuses and which must be answered like other invalid ids.

use std::borrow::Cow;
use std::sync::LazyLock;

use hyper::Method;

use super::endpoint::Endpoint;
use super::endpoints;

type Methods = Vec<&'static Endpoint>;

static ROUTER: LazyLock<matchit::Router<Methods>> = LazyLock::new(|| {
    let mut router = matchit::Router::new();
    for endpoint in endpoints::all() {
        // A template that is there already, or that conflicts with another, is found by comparing.
        let _ = router.insert(endpoint.template, of_template(endpoint.template));
    }
    router
});

fn of_template(template: &str) -> Methods {
    endpoints::all().filter(|endpoint| endpoint.template == template).collect()
}

/// The endpoints of a path; none when nothing is served there.
pub(super) fn find(path: &str) -> Cow<'static, [&'static Endpoint]> {
    if let Ok(found) = ROUTER.at(path) {
        return Cow::Borrowed(found.value.as_slice());
    }
    let covering = endpoints::all().find(|endpoint| endpoint.covers(path));
    Cow::Owned(covering.map(|endpoint| of_template(endpoint.template)).unwrap_or_default())
}

/// The endpoints of a path among some that are not always served.
pub(super) fn find_in(endpoints: &'static [Endpoint], path: &str) -> Methods {
    endpoints.iter().filter(|endpoint| endpoint.covers(path)).collect()
}

/// Those that paths take, in the order of the header `Allow`.
const METHODS: [Method; 5] = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE];

/// The methods of a path: a bit for each of [`METHODS`], so that every problem can carry them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AllowedMethods(u8);

impl AllowedMethods {
    pub(super) fn of(endpoints: &[&Endpoint]) -> Self {
        let is_there = |method: &Method| endpoints.iter().any(|endpoint| endpoint.accepts(method));
        Self(METHODS.iter().rev().fold(0, |bits, method| bits << 1 | u8::from(is_there(method))))
    }

    /// As `Allow` lists them; `None` if there are none.
    pub(crate) fn text(self) -> Option<String> {
        let is_there = |place: &usize| self.0 >> place & 1 == 1;
        let methods = (0..METHODS.len()).filter(is_there).filter_map(|place| METHODS.get(place));
        (self.0 != 0).then(|| methods.map(Method::as_str).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::permission::Permission;
    use super::*;

    /// The template a path leads to, and its methods.
    fn route(path: &str) -> (&'static str, String) {
        let found = find(path);
        (
            found.first().map_or("", |endpoint| endpoint.template),
            AllowedMethods::of(&found).text().unwrap_or_default(),
        )
    }

    #[test]
    fn every_endpoint_is_found_at_its_own_path() {
        let mut seen = BTreeSet::new();
        for endpoint in endpoints::all() {
            let path = endpoint.template.replace(['{', '}', '*'], "");
            let found = find(&path);
            assert!(found.iter().any(|one| std::ptr::eq(*one, endpoint)), "{path}");
            assert_eq!(found.iter().filter(|one| one.accepts(&endpoint.method)).count(), 1, "{path}");
            assert!(ROUTER.at(&path).is_ok(), "{path} is found without comparing");
            assert!(seen.insert((endpoint.template, endpoint.method.as_str())));
            for name in endpoint.path_parameters() {
                assert_eq!(endpoint.parameter(name, &path), name, "{path}");
            }
        }
        assert!(seen.len() > 60, "{seen:?}");
    }

    #[test]
    fn every_endpoint_says_who_may_use_it() {
        let unstated: Vec<&str> = endpoints::all()
            .filter(|endpoint| endpoint.permission == Permission::Unstated)
            .map(|endpoint| endpoint.template)
            .collect();
        assert_eq!(unstated, [""; 0]);
    }

    #[test]
    fn only_pages_are_not_documented() {
        let pages: Vec<&str> =
            endpoints::all().filter(|e| e.document.id.is_empty()).map(|e| e.template).collect();
        assert_eq!(pages, ["/", "/dashboard", "/docs", "/web/{*file}"]);
    }

    #[test]
    fn paths_lead_to_their_endpoints() {
        for (path, template, methods) in [
            ("/", "/", "GET, HEAD"),
            ("/web/app/main.js", "/web/{*file}", "GET, HEAD"),
            ("/v1/rooms", "/v1/rooms", "GET, HEAD"),
            ("/v1/rooms/lobby", "/v1/rooms/{room}", "GET, HEAD, PUT, DELETE"),
            ("/v1/rooms/lobby/members/ada", "/v1/rooms/{room}/members/{user}", "PUT, DELETE"),
            ("/v1/queues/get/messages/7/ack", "/v1/queues/{queue}/messages/{id}/ack", "POST"),
            ("/v1/kv/watch", "/v1/kv/watch", "GET"),
            ("/kv/a", "/kv/{*key}", "GET, HEAD, PUT, DELETE"),
            ("/kv/a/b//c/", "/kv/{*key}", "GET, HEAD, PUT, DELETE"),
            ("/kv/chat/x", "/kv/{*key}", "GET, HEAD, PUT, DELETE"),
            ("/v1/rooms/chat", "/v1/rooms/{room}", "GET, HEAD, PUT, DELETE"),
            ("/v1/queues/chat/messages", "/v1/queues/{queue}/messages", "GET, HEAD, POST"),
            ("/v1/rooms/health", "/v1/rooms/{room}", "GET, HEAD, PUT, DELETE"),
            // What matchit refuses, and what is no id, is still said to be no id.
            ("/kv/", "/kv/{*key}", "GET, HEAD, PUT, DELETE"),
            ("/v1/rooms/", "/v1/rooms/{room}", "GET, HEAD, PUT, DELETE"),
            ("/v1/rooms//messages", "/v1/rooms/{room}/messages", "GET, HEAD, POST"),
            ("/chat/", "/chat/{room}", "GET"),
            // Under any prefix.
            ("/chat/lobby", "/chat/{room}", "GET"),
            ("/a/b/chat/lobby", "/chat/{room}", "GET"),
            ("/v1/chat/lobby", "/chat/{room}", "GET"),
            ("/health", "/health", "GET, HEAD"),
            ("/a/health", "/health", "GET, HEAD"),
            ("/a/b/health/ready", "/health/ready", "GET, HEAD"),
            ("//health/live", "/health/live", "GET, HEAD"),
        ] {
            assert_eq!(route(path), (template, methods.to_owned()), "{path}");
        }
        for path in ["", "/v1", "/v1/", "/kv", "/nowhere", "/chat", "/v1/rooms/a/b", "/a/metrics", "/v1/kv/"]
        {
            assert_eq!(route(path), ("", String::new()), "{path}");
        }
    }

    #[test]
    fn parameters_are_what_stands_in_their_place() {
        let read = |path: &str, name: &str| {
            find(path).first().map(|endpoint| endpoint.parameter(name, path).to_owned()).unwrap_or_default()
        };
        assert_eq!(read("/v1/rooms/a%20b/members/ada", "room"), "a%20b");
        assert_eq!(read("/v1/rooms/a%20b/members/ada", "user"), "ada");
        assert_eq!(read("/a/b/chat/lobby", "room"), "lobby");
        assert_eq!(read("/chat/", "room"), "");
        assert_eq!(read("/kv//a/", "key"), "/a/");
        assert_eq!(read("/v1/rooms/lobby", "user"), "", "a parameter that is not there");
    }

    proptest::proptest! {
        /// What matchit finds is what comparing the templates one after another finds.
        #[test]
        fn both_ways_of_finding_agree(segments in proptest::collection::vec(
            proptest::sample::select(vec![
                "v1", "rooms", "kv", "queues", "clients", "messages", "members", "users", "stats", "watch", "ack",
                "backups", "files", "get", "read", "web", "x", "a.b",
            ]), 0..7)) {
            let path = format!("/{}", segments.join("/"));
            if let Ok(found) = ROUTER.at(&path) {
                let template = found.value.first().map(|endpoint| endpoint.template);
                let covering: Vec<&str> =
                    endpoints::all().filter(|e| e.covers(&path)).map(|e| e.template).collect();
                proptest::prop_assert!(template.is_some_and(|found| covering.contains(&found)), "{path}");
            } else {
                proptest::prop_assert!(
                    !endpoints::all().any(|e| !e.has_prefix && e.covers(&path)), "{path} is missed");
            }
        }
    }
}
