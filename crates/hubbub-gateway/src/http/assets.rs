//! The chat page, the dashboard and the page that shows the API: the files of `web/`, which are compiled into the binary.
//!
//! `/`, `/dashboard` and `/docs` name every file under `/web/{version}/`, where the version is a hash of them all: browsers keep those for good
//! and a new server brings new names. Under `/web/` alone they are there for other pages, and revalidated each time.

use std::hash::{DefaultHasher, Hasher};
use std::sync::LazyLock;

use bytes::Bytes;
use hubbub_core::ErrorCode;
use hubbub_core::text::repeated;
use hyper::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH};
use hyper::{HeaderMap, Response, StatusCode};

use super::endpoint::Call;
use super::{Answer, Body, IsKept, respond};
use crate::problem::Problem;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! file {
    ($kind:expr, $path:literal) => {
        ($path, $kind, include_bytes!(concat!("../../../../web/", $path)) as &[u8])
    };
}

const INDEX: &str = include_str!("../../../../web/index.html");
const DASHBOARD: &str = include_str!("../../../../web/dashboard.html");
const DOCS: &str = include_str!("../../../../web/docs.html");

const FILES: &[(&str, &str, &[u8])] = &[
    file!(SVG, "icon.svg"),
    file!(CSS, "style.css"),
    file!(SCRIPT, "hubbub.js"),
    file!(SCRIPT, "app/account.js"),
    file!(SCRIPT, "app/composer.js"),
    file!(SCRIPT, "app/dialogs.js"),
    file!(SCRIPT, "app/dom.js"),
    file!(SCRIPT, "app/events.js"),
    file!(SCRIPT, "app/format.js"),
    file!(SCRIPT, "app/ids.js"),
    file!(SCRIPT, "app/kv-api.js"),
    file!(SCRIPT, "app/kv-key.js"),
    file!(SCRIPT, "app/kv.js"),
    file!(SCRIPT, "app/log.js"),
    file!(SCRIPT, "app/login.js"),
    file!(SCRIPT, "app/main.js"),
    file!(SCRIPT, "app/model.js"),
    file!(SCRIPT, "app/name-use.js"),
    file!(SCRIPT, "app/names.js"),
    file!(SCRIPT, "app/pending.js"),
    file!(SCRIPT, "app/people-panel.js"),
    file!(SCRIPT, "app/people.js"),
    file!(SCRIPT, "app/queue.js"),
    file!(SCRIPT, "app/queues-api.js"),
    file!(SCRIPT, "app/queues.js"),
    file!(SCRIPT, "app/request.js"),
    file!(SCRIPT, "app/room-list.js"),
    file!(SCRIPT, "app/room-view.js"),
    file!(SCRIPT, "app/room.js"),
    file!(SCRIPT, "app/rows.js"),
    file!(SCRIPT, "app/sidebar.js"),
    file!(SCRIPT, "app/table.js"),
    file!(SCRIPT, "app/theme.js"),
    file!(SCRIPT, "app/timeline.js"),
    file!(SCRIPT, "app/token.js"),
    file!(CSS, "dashboard/dashboard.css"),
    file!(SCRIPT, "dashboard/charts.js"),
    file!(SCRIPT, "dashboard/connections.js"),
    file!(SCRIPT, "dashboard/figures.js"),
    file!(SCRIPT, "dashboard/keys.js"),
    file!(SCRIPT, "dashboard/lines.js"),
    file!(SCRIPT, "dashboard/logins.js"),
    file!(SCRIPT, "dashboard/main.js"),
    file!(SCRIPT, "dashboard/panels.js"),
    file!(SCRIPT, "dashboard/state.js"),
    file!(SCRIPT, "dashboard/units.js"),
    file!(CSS, "docs/docs.css"),
    file!(SCRIPT, "docs/curl.js"),
    file!(SCRIPT, "docs/main.js"),
    file!(SCRIPT, "docs/operations.js"),
    file!(SCRIPT, "docs/schema.js"),
    file!(SCRIPT, "docs/sockets.js"),
    file!(SCRIPT, "docs/text.js"),
    file!(CSS, "vendor/uplot/uPlot.min.css"),
    file!(SCRIPT, "vendor/uplot/uPlot.iife.min.js"),
    file!(TEXT, "vendor/uplot/LICENSE"),
];

/// Nothing but this server's own files and sockets; no script or style in the page, no element made from text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
     trusted-types 'none'";

const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");
const FOR_GOOD: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const OPENER_POLICY: (HeaderName, HeaderValue) =
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));

/// Name of the present state of all files.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    hasher.write(INDEX.as_bytes());
    hasher.write(DASHBOARD.as_bytes());
    hasher.write(DOCS.as_bytes());
    for (path, _, content) in FILES {
        hasher.write(path.as_bytes());
        hasher.write(content);
    }
    format!("{:016x}", hasher.finish())
});

static CHAT_PAGE: LazyLock<Bytes> = LazyLock::new(|| versioned(INDEX));
static DASHBOARD_PAGE: LazyLock<Bytes> = LazyLock::new(|| versioned(DASHBOARD));
static DOCS_PAGE: LazyLock<Bytes> = LazyLock::new(|| versioned(DOCS));

fn versioned(html: &str) -> Bytes {
    html.replace("\"/web/", &format!("\"/web/{}/", *VERSION)).into()
}

pub(super) async fn chat_page(call: Call) -> Answer {
    Ok(page(&call, CHAT_PAGE.clone()))
}

pub(super) async fn dashboard_page(call: Call) -> Answer {
    Ok(page(&call, DASHBOARD_PAGE.clone()))
}

pub(super) async fn docs_page(call: Call) -> Answer {
    Ok(page(&call, DOCS_PAGE.clone()))
}

fn page(call: &Call, content: Bytes) -> Response<Body> {
    let mut response = answer(call.headers(), HTML, content, REVALIDATE);
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(OPENER_POLICY.0, OPENER_POLICY.1);
    response
}

/// `GET /web/…`, with or without the version.
pub(super) async fn file(call: Call) -> Answer {
    let (path, caching) = named(call.parameter("file"));
    let Some((_, kind, content)) = FILES.iter().find(|(name, ..)| *name == path) else {
        return Err(Problem::new(ErrorCode::NotFound, format!("the page has no file {}", repeated(path))));
    };
    Ok(answer(call.headers(), kind, Bytes::from_static(content), caching))
}

/// Which file a path under `/web/` means, and how it may be kept. While servers are replaced one after another, a page of one
/// asks another for its files: that gives those it has, for this once.
fn named(path: &str) -> (&str, HeaderValue) {
    match path.split_once('/') {
        Some((version, file)) if version == *VERSION => (file, FOR_GOOD),
        Some((version, file)) if is_version(version) => (file, REVALIDATE),
        _ => (path, REVALIDATE),
    }
}

fn is_version(text: &str) -> bool {
    text.len() == VERSION.len() && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn answer(headers: &HeaderMap, kind: &'static str, content: Bytes, caching: HeaderValue) -> Response<Body> {
    let mut response = if is_not_modified(headers) {
        respond(StatusCode::NOT_MODIFIED, kind, Bytes::new())
    } else {
        respond(StatusCode::OK, kind, content)
    };
    response.extensions_mut().insert(IsKept);
    let answered = response.headers_mut();
    answered.insert(CACHE_CONTROL, caching);
    if let Ok(tag) = HeaderValue::from_str(&tag()) {
        answered.insert(ETAG, tag);
    }
    response
}

/// One for all files: they change together.
fn tag() -> String {
    format!("\"{}\"", *VERSION)
}

fn is_not_modified(headers: &HeaderMap) -> bool {
    let tag = tag();
    let given = headers.get_all(IF_NONE_MATCH).into_iter().filter_map(|value| value.to_str().ok());
    given
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_version_gets_the_files_that_there_are_and_keeps_them_for_once() {
        let (own, other) = (format!("{}/app/main.js", *VERSION), "0123456789abcdef/app/main.js");
        assert_eq!(named(&own), ("app/main.js", FOR_GOOD));
        assert_eq!(named(other), ("app/main.js", REVALIDATE));
        for path in
            ["app/main.js", "hubbub.js", "0123456789ABCDEF/icon.svg", "0123/icon.svg", "0123456789abcdef"]
        {
            assert_eq!(named(path), (path, REVALIDATE));
        }
    }
}
