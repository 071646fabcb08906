//! Who calls, and the one function that says what the caller may do.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use hubbub_core::id::ID_RULE;
use hubbub_core::{ErrorCode, FieldError, Timestamp, UserId};
use hyper::HeaderMap;

use super::grants::{Grants, Right, Scope};
use super::request_token::refused;
use super::token::later;
use crate::http::query::Query;
use crate::problem::Problem;

const USER_HEADER: &str = "hubbub-user";

/// Where somebody's rights come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RightsSource {
    /// Nobody has to prove anything on this server.
    Anyone,
    Token {
        /// Its `jti`.
        id: Option<Box<str>>,
        issued_at: Option<Timestamp>,
    },
    /// An API key with this id.
    Key(Box<str>),
    /// The login of an account, with this id.
    Login(Box<str>),
}

impl RightsSource {
    /// Whether it is an entry of the store, which other servers may end at any time.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(self, Self::Key(_) | Self::Login(_))
    }
}

/// Somebody who proved who it is, or did not have to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    /// `None` only with [`RightsSource::Anyone`].
    pub(crate) subject: Option<UserId>,
    pub(crate) grants: Grants,
    /// When it ends, as whoever issued it says.
    pub(crate) expires_at: Option<Timestamp>,
    /// How long it is accepted after that: clocks may differ.
    pub(crate) leeway: Duration,
    pub(crate) source: RightsSource,
}

impl Access {
    /// A copy that shares nothing with this one.
    pub(crate) fn separate(&self) -> Self {
        let copy = |subject: &UserId| UserId::new(subject.as_str()).unwrap_or_else(|_| subject.clone());
        let subject = self.subject.as_ref().map(copy);
        Self { subject, ..self.clone() }
    }

    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|expires_at| now >= later(expires_at, self.leeway))
    }
}

/// What a request proves of its sender.
#[derive(Debug, Clone)]
pub(crate) enum Identity {
    /// Nobody has to prove anything.
    Anyone,
    /// There is no token.
    Nobody,
    Somebody(Arc<Access>),
}

static OF_ANYONE: LazyLock<Access> = LazyLock::new(|| {
    let grants = Grants::administrator();
    Access { subject: None, grants, expires_at: None, leeway: Duration::ZERO, source: RightsSource::Anyone }
});
static OF_ANY_USER: LazyLock<Grants> = LazyLock::new(Grants::of_any_user);

/// What a caller wants to do, and with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement<'a> {
    Room(Right, &'a str),
    Queue(Right, &'a str),
    /// To find out that a queue is there.
    KnowQueue(&'a str),
    AllQueues(Right),
    Key(Right, &'a [u8]),
    /// All keys that begin so.
    Keys(Right, &'a [u8]),
    /// What belongs to this user.
    Own(&'a str),
    /// To see where this user is logged in, and to end that.
    Logins(&'a str),
    /// To end what belongs to this user in all rooms.
    Erase(&'a str),
    /// To take part in queues as this client.
    Client(&'a str),
    /// To send a room's message as this user.
    Sender(&'a str),
    Scope(Scope),
    Admin,
}

/// Who calls. An administrator may act in the name of a user, and has that user's rights then.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// `None` = the administrator, who may act for anybody.
    pub(crate) user: Option<UserId>,
    /// `None` = nobody has to prove anything.
    access: Option<Arc<Access>>,
}

impl Caller {
    /// With the name of the header `Hubbub-User`, else of `?user=`. A token that is not an administrator's has a name
    /// already, and takes no other.
    pub(crate) fn of(identity: Identity, headers: &HeaderMap, query: &Query) -> Result<Self, Problem> {
        Self::named(identity, name_of(headers, query)?)
    }

    pub(crate) fn named(identity: Identity, name: Option<UserId>) -> Result<Self, Problem> {
        let caller = Self::unnamed(identity)?;
        let Some(user) = name else { return Ok(caller) };
        if caller.access().grants.is_admin {
            return Ok(Self { user: Some(user), ..caller });
        }
        if caller.user.as_ref() != Some(&user) {
            let own = caller.as_str().unwrap_or_default();
            return Err(forbidden(format!("the token is that of '{own}', who may not act as '{user}'")));
        }
        Ok(caller)
    }

    /// Without another name than that of the token.
    pub(crate) fn unnamed(identity: Identity) -> Result<Self, Problem> {
        match identity {
            Identity::Anyone => Ok(Self { user: None, access: None }),
            Identity::Nobody => Err(refused("a token is required: Authorization: Bearer …")),
            Identity::Somebody(access) => {
                let user = access.subject.clone().filter(|_| !access.grants.is_admin);
                Ok(Self { user, access: Some(access) })
            }
        }
    }

    /// The same caller with another token, in the same name. `None` = the token is not for that name.
    pub(crate) fn renewed(&self, access: Arc<Access>) -> Option<Self> {
        let may_take_names = access.grants.is_admin;
        let user = access.subject.clone().filter(|_| !may_take_names);
        let is_same = self.access().subject == access.subject
            && if may_take_names { self.access().grants.is_admin } else { user == self.user };
        is_same.then(|| Self { user: self.user.clone(), access: Some(access) })
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        self.user.as_ref().map(UserId::as_str)
    }

    /// The sender of messages that name none.
    pub(crate) fn default_sender(&self) -> Option<&str> {
        self.default_sender_id().map(UserId::as_str)
    }

    /// Whom the caller goes by: the name it gave, else that of its token.
    pub(super) fn default_sender_id(&self) -> Option<&UserId> {
        self.user.as_ref().or(self.access().subject.as_ref())
    }

    pub(crate) fn access(&self) -> &Access {
        self.access.as_deref().unwrap_or(&OF_ANYONE)
    }

    /// What ends with the caller's token; `None` = the caller needs none.
    pub(crate) fn token(&self) -> Option<&Arc<Access>> {
        self.access.as_ref()
    }

    /// Whether the caller may do everything.
    pub(crate) fn is_administrator(&self) -> bool {
        self.user.is_none() && self.access().grants.is_admin
    }

    fn grants(&self) -> &Grants {
        let grants = &self.access().grants;
        if grants.is_admin { &OF_ANY_USER } else { grants }
    }

    /// Whether the caller may do something. Every protocol asks here, and nowhere else. That only members of a room for
    /// members may use it is the store's rule and comes on top.
    pub(crate) fn may(&self, requirement: Requirement<'_>) -> Result<(), Problem> {
        if self.is_administrator() {
            return Ok(());
        }
        // Without a user there is no token that is not an administrator's; nobody gets the name of nobody.
        let name = self.as_str().ok_or_else(|| forbidden("only the administrator may".to_owned()))?;
        let grants = self.grants();
        let is_allowed = match requirement {
            Requirement::Room(right, room) => grants.has_room(right, room),
            Requirement::Queue(right, queue) => grants.has_queue(right, queue),
            Requirement::KnowQueue(queue) => {
                grants.has_queue(Right::Read, queue) || grants.has_queue(Right::Write, queue)
            }
            Requirement::AllQueues(right) => grants.has_all_queues(right),
            Requirement::Key(right, prefix) | Requirement::Keys(right, prefix) => {
                grants.has_keys(right, prefix)
            }
            Requirement::Own(user) | Requirement::Sender(user) => user == name,
            Requirement::Logins(user) => user == name && self.manages_logins(),
            Requirement::Erase(user) => user == name && grants.has_all_rooms(Right::Write),
            Requirement::Client(client) => client == name && grants.has_some_queue(),
            Requirement::Scope(scope) => grants.has_scope(scope),
            Requirement::Admin => false,
        };
        if is_allowed { Ok(()) } else { Err(self.refusal(requirement, name)) }
    }

    /// Whether [`Self::may`] allows it.
    pub(crate) fn is_allowed(&self, requirement: Requirement<'_>) -> bool {
        self.may(requirement).is_ok()
    }

    /// Whether it is a login, or an administrator who acts for somebody. A key or a token that was given to a program for one
    /// thing says nothing of logins.
    fn manages_logins(&self) -> bool {
        self.access().grants.is_admin || matches!(self.access().source, RightsSource::Login(_))
    }

    fn refusal(&self, requirement: Requirement<'_>, name: &str) -> Problem {
        let what = match requirement {
            Requirement::Room(Right::Read, room) => format!("read room '{room}'"),
            Requirement::Room(Right::Write, room) => format!("send to room '{room}'"),
            Requirement::Room(Right::Manage, room) => format!("manage room '{room}'"),
            Requirement::Queue(Right::Read, queue) => format!("take from queue '{queue}'"),
            Requirement::Queue(_, queue) => format!("send to queue '{queue}'"),
            Requirement::KnowQueue(queue) => format!("see queue '{queue}'"),
            Requirement::AllQueues(_) => "take from all queues".to_owned(),
            Requirement::Key(Right::Read, _) => "read this key".to_owned(),
            Requirement::Key(..) => "change this key".to_owned(),
            Requirement::Keys(..) => "read all of these keys; name a prefix that it may read".to_owned(),
            Requirement::Own(user) => {
                return forbidden(format!("this is for '{user}' and for administrators"));
            }
            Requirement::Logins(user) => {
                return forbidden(format!(
                    "this is for who is logged in as '{user}', and for administrators"
                ));
            }
            Requirement::Erase(user) if user == name => "erase, which takes w for all rooms".to_owned(),
            Requirement::Erase(user) => {
                return forbidden(format!("this is for '{user}' and for administrators"));
            }
            Requirement::Client(client) if client != name => {
                return forbidden(format!("'{name}' may not act as '{client}'"));
            }
            Requirement::Client(_) => "use any queue".to_owned(),
            Requirement::Sender(_) => return self.wrong_sender(name),
            Requirement::Scope(Scope::Stats) => {
                return forbidden("statistics of others are for administrators".to_owned());
            }
            Requirement::Scope(_) | Requirement::Admin => {
                return forbidden(format!("only the administrator may, not '{name}'"));
            }
        };
        forbidden(format!("the token of '{name}' does not allow to {what}"))
    }

    /// One's own name, given wrongly, is a mistake; with a token it is somebody else's name.
    fn wrong_sender(&self, name: &str) -> Problem {
        let faults = vec![FieldError::new("userId", format!("must be the caller, '{name}'"))];
        match self.access().source {
            RightsSource::Anyone => Problem::invalid(faults),
            RightsSource::Token { .. } | RightsSource::Key(_) | RightsSource::Login(_) => {
                let detail = format!("userId must be '{name}', whose token this is");
                Problem { faults, ..forbidden(detail) }
            }
        }
    }
}

/// The name a caller goes by, if there is one.
pub(crate) fn name_of(headers: &HeaderMap, query: &Query) -> Result<Option<UserId>, Problem> {
    let header = headers.get(USER_HEADER).map(|value| value.to_str().unwrap_or_default());
    let Some(name) = header.or(query.get("user")) else { return Ok(None) };
    UserId::new(name).map(Some).map_err(|_| Problem::invalid(vec![FieldError::new("user", ID_RULE)]))
}

fn forbidden(detail: String) -> Problem {
    Problem::new(ErrorCode::Forbidden, detail)
}
