//! The client: what its rooms, queues and keys share.

use std::sync::Arc;

use hyper::Response;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::address::Address;
use crate::connection::ConnectionState;
use crate::error::Error;
use crate::http::{Answer, Http, Request};
use crate::keys::Keys;
use crate::options::Options;
use crate::queues::Queue;
use crate::rooms::Room;
use crate::socket::Socket;

/// Client of a server's rooms, queues and keys. Its clones are the same client. It needs a Tokio runtime.
///
/// [`Client::close`] ends it. Its connection of rooms ends also when the last clone, room, subscription and receipt to come is
/// dropped.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: Arc<Http>,
    connection: watch::Sender<ConnectionState>,
    socket: Mutex<SocketSlot>,
}

#[derive(Debug, Default)]
struct SocketSlot {
    socket: Option<Arc<Socket>>,
    is_closed: bool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.get_mut().socket.take() {
            socket.close();
        }
    }
}

impl Client {
    /// A client of the server at `url`, such as `http://127.0.0.1:8080`. It connects at the first use.
    ///
    /// # Errors
    /// `invalid` if that is no address, or the token or the user has characters that no header may have.
    pub fn new(url: &str, options: Options) -> Result<Self, Error> {
        let client = Self::of(url.parse()?, options);
        client.0.http.caller(client.0.http.token().as_deref())?;
        Ok(client)
    }

    /// The same with an address that was read before.
    pub fn of(address: Address, options: Options) -> Self {
        let http = Arc::new(Http::new(address, options));
        let connection = watch::Sender::new(ConnectionState::Connecting);
        Self(Arc::new(Inner { http, connection, socket: Mutex::default() }))
    }

    /// Room of this name. Nothing is asked of the server yet.
    pub fn room(&self, name: impl Into<String>) -> Room {
        Room::new(name.into(), self.clone())
    }

    /// Queue of this name. Nothing is asked of the server yet.
    pub fn queue(&self, name: &str) -> Queue {
        Queue::new(name, Arc::clone(&self.0.http))
    }

    /// Keys with values.
    pub fn keys(&self) -> Keys {
        Keys::new(Arc::clone(&self.0.http))
    }

    /// Goes on with another token of the same user, on the open socket, too. What is refused for the last token is tried
    /// again with this one. Subscriptions of rooms that it may not read end with `forbidden`.
    pub fn set_token(&self, token: &str) {
        self.0.http.set_token(Some(token.to_owned()));
        if let Some(socket) = &self.0.socket.lock().socket {
            socket.renew(token);
        }
    }

    /// Ends everything. Messages without a receipt, requests and [`Queue::poll`] are refused with code `closed`; subscriptions
    /// and watches end without an error.
    pub fn close(&self) {
        let mut slot = self.0.socket.lock();
        slot.is_closed = true;
        if let Some(socket) = slot.socket.take() {
            socket.close();
        }
        self.0.http.close();
    }

    /// How the connection of rooms is; there is none before the first message or subscription.
    pub fn connection(&self) -> watch::Receiver<ConnectionState> {
        self.0.connection.subscribe()
    }

    /// Opens a connection for the next request, to learn early that nobody listens there.
    ///
    /// # Errors
    /// `unreachable`, and `invalid` if TLS cannot be used.
    pub async fn connect(&self) -> Result<(), Error> {
        self.0.http.connect().await
    }

    /// Makes one attempt, and reads the whole answer, whatever its status.
    ///
    /// # Errors
    /// `unreachable` if there is no answer, `invalid` if there can be none.
    pub async fn attempt(&self, request: &Request) -> Result<Answer, Error> {
        self.0.http.attempt(request, self.0.http.token().as_deref()).await
    }

    /// Makes one attempt, and returns a success before its body is read.
    ///
    /// # Errors
    /// As [`Client::attempt`], and the refusal of any other status.
    pub async fn begin(&self, request: &Request) -> Result<Response<Incoming>, Error> {
        self.0.http.begin(request, self.0.http.token().as_deref()).await
    }

    /// Repeats a request until there is a final answer, for as long as [`Options::patience`] says. Only what may be done
    /// twice may be repeated.
    ///
    /// # Errors
    /// As [`Client::begin`].
    pub async fn request(&self, request: &Request) -> Result<Answer, Error> {
        self.0.http.call(request).await
    }

    pub(crate) fn http(&self) -> &Arc<Http> {
        &self.0.http
    }

    /// The socket; another one after the server refused the last for good, as with a token that ended, or after the
    /// runtime it was started in.
    pub(crate) fn socket(&self) -> Result<Arc<Socket>, Error> {
        let mut slot = self.0.socket.lock();
        if slot.is_closed {
            return Err(Error::closed());
        }
        match &slot.socket {
            Some(socket) if !socket.is_over() => Ok(Arc::clone(socket)),
            last => {
                if let Some(last) = last {
                    last.end(&Error::unreachable("the runtime that the connection ran in has ended"));
                }
                let socket = Socket::start(Arc::clone(&self.0.http), self.0.connection.clone());
                Ok(Arc::clone(slot.socket.insert(socket)))
            }
        }
    }
}
