//! Requests of the server itself to others: over HTTP or HTTPS, one connection each, for small answers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// For a document.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Whether the address may be fetched: whoever can change what comes could sign tokens.
pub(crate) fn check(uri: &Uri) -> Result<(), String> {
    let host = uri.host().unwrap_or_default();
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("must be without a name and a password".to_owned());
    }
    let is_here = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    match uri.scheme_str() {
        Some("https") if !host.is_empty() => Ok(()),
        Some("http") if is_here => Ok(()),
        _ => Err("must be https://…, or http:// of this machine".to_owned()),
    }
}

/// The body of a successful answer. Redirects are not followed.
pub(crate) async fn get(uri: &Uri, bytes_max: usize) -> Result<Vec<u8>, String> {
    check(uri)?;
    let mut request = Request::new(Full::default());
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
    let answer = send(uri, request, bytes_max, TIMEOUT).await?;
    if !answer.status().is_success() {
        return Err(format!("the answer was {}", answer.status().as_u16()));
    }
    Ok(answer.into_body().to_vec())
}

/// Sends a request to `http://` or `https://`, and returns the answer, whose body has at most `bytes_max` bytes, and is
/// left out where it is an error's. The method, the
/// headers and the body are those of `request`. All of it may take `timeout`. Redirects are not followed.
pub async fn send(
    uri: &Uri,
    request: Request<Full<Bytes>>,
    bytes_max: usize,
    timeout: Duration,
) -> Result<Response<Bytes>, String> {
    let fetching = async {
        let is_tls = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
        if !is_tls {
            return exchange(stream, uri, request, bytes_max).await;
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(tls()?);
        let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        exchange(stream, uri, request, bytes_max).await
    };
    let fetched = tokio::time::timeout(timeout, fetching).await;
    fetched.map_err(|_| format!("no answer within {} s", timeout.as_secs()))?
}

async fn exchange<S>(
    stream: S,
    uri: &Uri,
    mut request: Request<Full<Bytes>>,
    bytes_max: usize,
) -> Result<Response<Bytes>, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    *request.uri_mut() = path.parse().map_err(|error: hyper::http::uri::InvalidUri| error.to_string())?;
    let host = HeaderValue::from_str(authority).map_err(|error| error.to_string())?;
    let headers = request.headers_mut();
    headers.insert(HOST, host);
    headers.insert(
        USER_AGENT,
        const { HeaderValue::from_static(concat!("hubbub/", env!("CARGO_PKG_VERSION"))) },
    );
    let answering = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            return Ok(Response::from_parts(head, Bytes::new()));
        }
        let body = Limited::new(body, bytes_max).collect().await.map_err(|error| error.to_string())?;
        Ok(Response::from_parts(head, body.to_bytes()))
    };
    tokio::pin!(answering);
    tokio::select! {
        answer = &mut answering => answer,
        ended = connection => match ended {
            Ok(()) => answering.await,
            Err(error) => Err(error.to_string()),
        },
    }
}

/// Whom to trust is read once: it takes many files.
fn tls() -> Result<Arc<ClientConfig>, String> {
    static TLS: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = TLS.get() {
        return Ok(config.clone());
    }
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err("the system has no certificates to trust".to_owned());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    Ok(TLS.get_or_init(|| Arc::new(config.with_root_certificates(roots).with_no_client_auth())).clone())
}
