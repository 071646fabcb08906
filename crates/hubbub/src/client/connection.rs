//! Requests to a server, with error messages for people.

use std::pin::pin;
use std::time::Duration;

use anyhow::anyhow;
use bytes::Bytes;
use hubbub_client::{Client, Error, Problem, Request};
use hyper::body::Incoming;
use hyper::header::HeaderName;
use hyper::{Method, Response, StatusCode};
use serde_json::Value;
use tokio::time::timeout;

use super::address::Server;
pub(crate) use super::address::TIMEOUT;
use crate::output::{Refusal, notice};
use crate::progress::Progress;

/// Headers of a request with JSON.
pub(crate) const JSON: &[(HeaderName, &str)] = &[(hyper::header::CONTENT_TYPE, "application/json")];

impl Server {
    /// A connection that the first request opens.
    pub(crate) fn connection(self) -> Connection {
        Connection { client: self.client(), is_proven: false, progress: None }
    }

    /// An open connection.
    pub(crate) async fn connect(self) -> anyhow::Result<Connection> {
        let mut connection = self.connection();
        connection.prove().await.map_err(failed)?;
        Ok(connection)
    }
}

/// Time without a final answer after which a command says that it waits.
const SILENCE: Duration = Duration::from_secs(10);
const WAITING: &str = "the server has not answered for good yet; waiting for it";

const LATE: &str = "no answer in time";

/// The error of a request whose time is over.
fn late() -> Error {
    Problem { code: "unreachable".into(), detail: LATE.into(), retryable: true, ..Problem::default() }.into()
}

/// The answer, or an error after the longest time; after the silence that comes before, `say` is called.
async fn patient<T>(
    answer: impl Future<Output = Result<T, Error>>,
    [silence, longest]: [Duration; 2],
    say: impl Fn(),
) -> Result<T, Error> {
    let mut answer = pin!(answer);
    if let Ok(answer) = timeout(silence, &mut answer).await {
        return answer;
    }
    say();
    timeout(longest.saturating_sub(silence), answer).await.unwrap_or_else(|_| Err(late()))
}

/// What is said of some causes in the place of their own words.
const ADVICE: [(&str, &str); 7] = [
    ("is it running?", "is it running? (hubbub serve, --server)"),
    ("invalid HTTP version parsed", "the answer is no HTTP; this port may speak TLS: try https://"),
    // What the same server does to a WebSocket.
    (
        "closed the connection during the handshake",
        "closed the connection during the handshake; if this port speaks TLS, use https://",
    ),
    ("invalid peer certificate: UnknownIssuer", "no authority that is trusted here issued it"),
    ("invalid peer certificate: BadSignature", NAMESAKE),
    (OTHER_KIND_OF_KEY, NAMESAKE),
    (
        "Other(OtherError(CaUsedAsEndEntity))",
        "it says that it is an authority's; make one for the server with basicConstraints=CA:FALSE",
    ),
];

/// What TLS says of a certificate that names an authority whose key is of another kind. Numbers follow, in braces.
const OTHER_KIND_OF_KEY: &str = "invalid peer certificate: UnsupportedSignatureAlgorithmForPublicKeyContext";
const NAMESAKE: &str = "an authority that is trusted here has the name of its issuer, but did not issue it; a certificate of \
     your own needs a name (CN) that no other one has";

/// The reason with what to do about it.
pub(super) fn advised(reason: &str) -> String {
    let mut reason = reason.to_owned();
    if let Some((before, numbers)) = reason.split_once(OTHER_KIND_OF_KEY) {
        let after = numbers.split_once('}').map_or("", |(_, after)| after);
        reason = format!("{before}{OTHER_KIND_OF_KEY}{after}");
    }
    ADVICE.iter().fold(reason, |text, (cause, advice)| text.replacen(cause, advice, 1))
}

/// A refusal by the server as this program reports it; any other error as it is.
pub(crate) fn failed(error: Error) -> anyhow::Error {
    if error.status == 0 {
        return anyhow!(advised(&error.to_string()));
    }
    refused(&error)
}

/// The same of an answer to `path`, which need not be a Hubbub server's.
pub(super) fn failed_at(path: &str, error: &Error) -> anyhow::Error {
    match error.status {
        0 => anyhow!(advised(&error.to_string())),
        // A proxy's error in JSON says more than that it is none of Hubbub's.
        status => match &error.content_type {
            Some(kind) if status < 400 || !is_json(kind) => no_json(path, status, kind),
            _ => refused(error),
        },
    }
}

/// Whether a content type is that of JSON, such as `application/problem+json`.
fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind.ends_with("/json") || kind.ends_with("+json")
}

/// What a server ended as this program reports it.
pub(super) fn refused(error: &Error) -> anyhow::Error {
    let (status, code, detail) = (error.status, error.code.clone(), error.detail.clone());
    anyhow!(Refusal { status, code, detail })
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl Answer {
    /// An answer whose body need not be JSON.
    pub(crate) fn lenient(status: StatusCode, body: &[u8]) -> Self {
        Self { status, body: serde_json::from_slice(body).unwrap_or_default() }
    }

    /// The body of a success, or the server's error.
    pub(crate) fn success(self) -> anyhow::Result<Value> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        let text = |name: &str| super::text(&self.body, name).to_owned();
        Err(anyhow!(Refusal { status: self.status.as_u16(), code: text("code"), detail: text("detail") }))
    }
}

/// A connection that is opened again by the first request after it was lost.
pub(crate) struct Connection {
    client: Client,
    /// Somebody listens at the address, so it is not a wrong one.
    is_proven: bool,
    /// Of work that may take hours.
    progress: Option<Progress>,
}

impl Connection {
    /// The same for work that may take hours: it waits as long as the server's patience says, and speaks beside its progress.
    pub(crate) fn with_progress(self, progress: Progress) -> Self {
        Self { progress: Some(progress), ..self }
    }

    /// Connects, if it has not done so before.
    async fn prove(&mut self) -> Result<(), Error> {
        if !self.is_proven {
            self.client.connect().await?;
            self.is_proven = true;
        }
        Ok(())
    }

    /// Reads what is at `path`; repeats that until the answer is final. Where nobody listens from the beginning, it says so
    /// at once.
    pub(crate) async fn read(&mut self, path: &str) -> Result<hubbub_client::Answer, Error> {
        self.prove().await?;
        self.repeat(&request(TIMEOUT, Method::GET, path, &[], "")).await
    }

    /// Repeats a request until the answer is final, and says so where that takes long. Unless it is part of long work, it ends
    /// when one answer would be late.
    async fn repeat(&self, request: &Request) -> Result<hubbub_client::Answer, Error> {
        let longest = if self.progress.is_some() { Duration::MAX } else { TIMEOUT };
        let say = || match &self.progress {
            Some(progress) => progress.remark(WAITING),
            None => notice(WAITING),
        };
        patient(self.client.request(request), [SILENCE, longest], say).await
    }

    /// The same as JSON.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Value> {
        let answer = self.read(path).await.map_err(|error| failed_at(path, &error))?;
        Ok(json(path, answer)?.body)
    }

    /// Sends a request with JSON.
    pub(crate) async fn request(
        &mut self,
        timeout: Duration,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> anyhow::Result<Answer> {
        let answer = self.whole(timeout, method, path, JSON, body).await?;
        json(path, answer)
    }

    /// The same; repeats it until the answer is final.
    pub(crate) async fn retry(&mut self, method: Method, path: &str, body: String) -> anyhow::Result<Answer> {
        let answer = self.repeat(&request(TIMEOUT, method, path, JSON, body)).await;
        json(path, answer.map_err(|error| failed_at(path, &error))?)
    }

    /// Sends a request and reads the whole answer, whatever its status.
    pub(crate) async fn whole(
        &mut self,
        timeout: Duration,
        method: Method,
        path: &str,
        headers: &[(HeaderName, &str)],
        body: impl Into<Bytes>,
    ) -> anyhow::Result<hubbub_client::Answer> {
        self.client.attempt(&request(timeout, method, path, headers, body)).await.map_err(failed)
    }

    /// Sends a request, and returns before the body of its success is read.
    pub(crate) async fn begin(&mut self, method: Method, path: &str) -> Result<Response<Incoming>, Error> {
        self.client.begin(&request(TIMEOUT, method, path, &[], "")).await
    }

    /// The client, for what it has methods for.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

fn request(
    timeout: Duration,
    method: Method,
    path: &str,
    headers: &[(HeaderName, &str)],
    body: impl Into<Bytes>,
) -> Request {
    let request = Request::new(method, path).body(body).wait(timeout.saturating_sub(TIMEOUT));
    headers.iter().fold(request, |request, (name, value)| request.header(name.clone(), *value))
}

pub(super) fn json(path: &str, answer: hubbub_client::Answer) -> anyhow::Result<Answer> {
    let body = match answer.body.as_ref() {
        b"" => Value::Null,
        body => serde_json::from_slice(body).map_err(|_| {
            let kind = answer.headers.get(hyper::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            no_json(path, answer.status.as_u16(), kind.unwrap_or_default())
        })?,
    };
    Ok(Answer { status: answer.status, body })
}

/// Names what tells a wrong address from a proxy's error.
fn no_json(path: &str, status: u16, kind: &str) -> anyhow::Error {
    let kind = if kind.is_empty() { "no content type" } else { kind };
    let what = match status {
        502..=504 => "the proxy there reaches no server",
        _ => "is it a Hubbub server? (--server)",
    };
    anyhow!("{path} was not answered with JSON (status {status}, {kind}); {what}")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn a_command_says_that_it_waits_and_ends_in_time() {
        let ms = Duration::from_millis;
        let waits = [ms(50), ms(200)];
        for (takes, is_said, is_answered) in
            [(ms(0), false, true), (ms(100), true, true), (ms(5_000), true, false)]
        {
            let said = Cell::new(0);
            let answer = async {
                sleep(takes).await;
                Ok(())
            };
            let answered = patient(answer, waits, || said.set(said.get() + 1)).await;
            assert_eq!((said.get(), answered.is_ok()), (i32::from(is_said), is_answered), "{takes:?}");
        }
    }

    #[test]
    fn a_certificate_with_the_name_of_another_is_told_in_words() {
        let failed = "TLS with localhost:1 failed: invalid peer certificate: \
            UnsupportedSignatureAlgorithmForPublicKeyContext { signature_algorithm_id: [6, 8], \
            public_key_algorithm_id: [6, 9] } (x)";
        let told = advised(failed);
        assert_eq!(told, format!("TLS with localhost:1 failed: {NAMESAKE} (x)"));
    }

    #[test]
    fn an_error_of_a_proxy_is_told_in_its_words() {
        let told = |status, content_type: &str| {
            let (code, content_type) = ("unexpected".into(), Some(content_type.into()));
            let detail = r#"{"message":"the quota is used up"}"#.into();
            failed_at(
                "/v1/rooms",
                &Problem { code, status, detail, content_type, ..Problem::default() }.into(),
            )
        };
        for kind in ["application/json", "application/problem+json; charset=utf-8", "Application/JSON"] {
            let error = told(429, kind);
            let refusal = error.downcast_ref::<Refusal>().unwrap();
            assert_eq!((refusal.status, refusal.code.as_str()), (429, "unexpected"));
            assert!(error.to_string().contains("the quota is used up"), "{error}");
        }
        for (status, kind) in [(404, "text/html"), (502, ""), (301, "application/json"), (502, "text/x-json")]
        {
            let said = told(status, kind).to_string();
            assert!(said.contains("not answered with JSON") && said.contains(&status.to_string()), "{said}");
        }
    }
}
