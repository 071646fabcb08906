//! How much one user and one address may ask for: requests and bytes each second, connections, and rooms.
//!
//! A request is an HTTP request, a line of a bulk request, a text frame of a WebSocket, or a command of the line protocol.
//! Whoever is charged has an [`Account`], which sockets keep and HTTP requests look up. An account holds the time up to
//! which what was charged is paid for, at the configured rate; who is further ahead than [`BURST`] is refused. So what is
//! larger than the rate passes, and is paid for before the next.
//!
//! Invariants
//! - Without limits nothing is looked up, and no clock is read.
//! - What is refused is not charged.
//! - There are at most [`ACCOUNTS_MAX`] accounts. Those beyond share one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use hubbub_core::invariant::saturate;
use hubbub_core::{ErrorCode, UserId};
use hyper::HeaderMap;
use ipnet::IpNet;
use parking_lot::Mutex;

use crate::problem::Problem;
use crate::room_limit::Turns;

/// How far ahead of its rate an account may be.
const BURST: Duration = Duration::from_secs(1);
/// Some 100 bytes each.
const ACCOUNTS_MAX: usize = 100_000;
/// Time between two searches for accounts that are not used any more.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// A socket of which so many requests in a row were refused is closed, and a bulk request is read no further.
pub(crate) const REFUSED_MAX: u32 = 1_000;
const FORWARDED_FOR: &str = "x-forwarded-for";

/// Requests and bytes each second; `None` = no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rate {
    /// Requests each second.
    pub requests: Option<usize>,
    /// Their bytes each second.
    pub bytes: Option<usize>,
}

impl Rate {
    fn is_limited(self) -> bool {
        self.requests.is_some() || self.bytes.is_some()
    }
}

/// What is limited for each user and each address.
#[derive(Debug, Clone, Default)]
pub struct RateLimits {
    /// Of one user, over all connections.
    pub user: Rate,
    /// Of one address.
    pub address: Rate,
    /// Connections that one address may have open.
    pub connections: Option<usize>,
    /// HTTP requests under way, of everybody together.
    pub under_way: Option<usize>,
    /// Requests that wait for a queue's next message, of everybody together.
    pub waiting: Option<usize>,
    /// Rooms that one user may be a member of.
    pub user_rooms: Option<usize>,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
}

/// Who is charged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    User(UserId),
    /// As [`network`] has it.
    Address(IpAddr),
}

/// What one user or address was charged.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Nanoseconds of the monotonic clock up to which requests are paid for.
    requests_until: AtomicU64,
    /// The same for bytes.
    bytes_until: AtomicU64,
    connections: AtomicUsize,
}

impl Account {
    /// Refuses what costs so much, if the account would be ahead by more than `most` then.
    pub(crate) fn check(&self, cost: Duration, now: Duration, most: Duration) -> Result<(), Exceeded> {
        refuse_ahead(std::iter::once(&self.requests_until), nanos(now), most.saturating_sub(cost))
    }

    /// Charges it.
    pub(crate) fn charge(&self, cost: Duration, now: Duration) {
        add(&self.requests_until, nanos(cost), nanos(now));
    }

    fn is_settled(&self, now: u64) -> bool {
        let until = self.requests_until.load(Ordering::Relaxed).max(self.bytes_until.load(Ordering::Relaxed));
        until <= now && self.connections.load(Ordering::Relaxed) == 0
    }
}

/// Which accounts a connection or request is charged to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Charged {
    user: Option<Arc<Account>>,
    address: Option<Arc<Account>>,
}

impl Charged {
    pub(crate) fn is_nobody(&self) -> bool {
        self.user.is_none() && self.address.is_none()
    }
}

/// A refusal because of a rate, and when to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(crate) retry_after: Duration,
}

impl From<Exceeded> for Problem {
    fn from(exceeded: Exceeded) -> Self {
        let seconds = saturate::<_, u32>(exceeded.retry_after.as_secs()).saturating_add(1);
        let detail = format!("more than this user or address may ask for; try again in {seconds} s");
        Self { retry_after_s: seconds, ..Self::new(ErrorCode::TooManyRequests, detail) }
    }
}

/// The accounts of those who were charged lately.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    held: HashMap<Holder, Arc<Account>>,
    swept_at: Duration,
    /// Of all for whom there was no place.
    shared: Arc<Account>,
}

/// The limits, and what was charged.
#[derive(Debug, Default)]
pub struct Rates {
    limits: RateLimits,
    accounts: Mutex<Accounts>,
    under_way: AtomicUsize,
    pub(crate) joining: Arc<Turns>,
}

impl Rates {
    /// Nobody has been charged yet.
    pub fn new(limits: RateLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Who pays for what `user` asks from `address`.
    pub(crate) fn charged(&self, user: Option<&UserId>, address: IpAddr, now: Duration) -> Charged {
        let user = user.filter(|_| self.limits.user.is_limited());
        let address = self.limits.address.is_limited().then_some(address);
        Charged {
            user: user.map(|user| self.account(Holder::User(user.clone()), now)),
            address: address.map(|address| self.account(Holder::Address(network(address)), now)),
        }
    }

    /// Charges a user too, who was not known when the connection began.
    pub(crate) fn charge_user(&self, charged: &mut Charged, user: Option<&UserId>, now: Duration) {
        if let Some(user) = user.filter(|_| charged.user.is_none() && self.limits.user.is_limited()) {
            charged.user = Some(self.account(Holder::User(user.clone()), now));
        }
    }

    /// Whether anything is charged at all.
    pub(crate) fn is_limited(&self) -> bool {
        self.limits.user.is_limited() || self.limits.address.is_limited()
    }

    /// Refuses what would be refused of any size, and charges nothing: before work that nobody pays for otherwise.
    pub(crate) fn check(&self, charged: &Charged, now: Duration) -> Result<(), Exceeded> {
        let accounts = [&charged.user, &charged.address].into_iter().flatten();
        let meters = accounts.flat_map(|account| [&account.requests_until, &account.bytes_until]);
        refuse_ahead(meters, nanos(now), BURST)
    }

    /// Charges one request of `bytes`, or refuses it.
    pub(crate) fn charge(&self, charged: &Charged, bytes: usize, now: Duration) -> Result<(), Exceeded> {
        self.charge_units(charged, (1, bytes), now)
    }

    /// Charges bytes of a request that was charged before it was known how many it has, or refuses them.
    pub(crate) fn charge_bytes(
        &self,
        charged: &Charged,
        bytes: usize,
        now: Duration,
    ) -> Result<(), Exceeded> {
        self.charge_units(charged, (0, bytes), now)
    }

    /// Without a request, what requests are ahead by refuses nothing.
    fn charge_units(
        &self,
        charged: &Charged,
        (requests, bytes): (usize, usize),
        now: Duration,
    ) -> Result<(), Exceeded> {
        let now = nanos(now);
        let sides = [(&charged.user, self.limits.user), (&charged.address, self.limits.address)];
        let meters = || {
            sides.iter().filter_map(|(account, rate)| Some((account.as_ref()?, rate))).flat_map(
                |(account, rate)| {
                    let limit = rate.requests.filter(|_| requests > 0);
                    limit
                        .map(|rate| (&account.requests_until, cost(requests, rate)))
                        .into_iter()
                        .chain(rate.bytes.map(|rate| (&account.bytes_until, cost(bytes, rate))))
                },
            )
        };
        refuse_ahead(meters().map(|(until, _)| until), now, BURST)?;
        meters().for_each(|(until, cost)| add(until, cost, now));
        Ok(())
    }

    /// One more connection of an address; `None` when it has as many as it may.
    pub(crate) fn connect(&self, address: IpAddr, now: Duration) -> Option<OpenConnection> {
        let Some(most) = self.limits.connections.filter(|_| !self.is_trusted(address)) else {
            return Some(OpenConnection(None));
        };
        let account = self.account(Holder::Address(network(address)), now);
        let open = &account.connections;
        let more = |open: usize| (open < most).then_some(open + 1);
        open.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(OpenConnection(Some(account)))
    }

    /// One more HTTP request under way.
    pub(crate) fn begin_request(&self) -> Result<UnderWay<'_>, Problem> {
        let Some(most) = self.limits.under_way else { return Ok(UnderWay(None)) };
        let more = |under_way: usize| (under_way < most).then_some(under_way + 1);
        match self.under_way.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(_) => Ok(UnderWay(Some(&self.under_way))),
            Err(_) => Err(Problem::too_many("requests are under way", most)),
        }
    }

    /// Refuses one more request that waits for a queue's next message, when so many wait.
    pub(crate) fn check_waiting(&self, waiting: i64) -> Result<(), Problem> {
        match self.limits.waiting {
            Some(most) if usize::try_from(waiting).is_ok_and(|waiting| waiting >= most) => {
                Err(Problem::too_many("requests wait for messages", most))
            }
            _ => Ok(()),
        }
    }

    /// Rooms that one user may be a member of.
    pub(crate) fn user_rooms(&self) -> Option<usize> {
        self.limits.user_rooms
    }

    /// The client's address: that of the connection, or what a trusted proxy says it is.
    pub(crate) fn client_address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if !self.is_trusted(peer) {
            return peer;
        }
        let values = headers.get_all(FORWARDED_FOR).into_iter().map(hyper::header::HeaderValue::as_bytes);
        let mut named: Vec<&[u8]> = values.flat_map(|value| value.split(|byte| *byte == b',')).collect();
        // Each proxy appends whom it was reached by; what stands before an address that is not trusted is anybody's claim.
        let mut client = peer;
        while let Some(address) = named.pop().and_then(read_address) {
            client = address.to_canonical();
            if !self.is_trusted(client) {
                break;
            }
        }
        client
    }

    fn is_trusted(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.limits.trusted_proxies.iter().any(|network| network.contains(&address))
    }

    fn account(&self, holder: Holder, now: Duration) -> Arc<Account> {
        self.accounts.lock().get(holder, now)
    }
}

/// An address as proxies name it: some add the port, or write an IPv6 address in brackets.
fn read_address(name: &[u8]) -> Option<IpAddr> {
    let name = std::str::from_utf8(name.trim_ascii()).ok()?;
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let with_port = || name.parse::<SocketAddr>().ok().map(|address| address.ip());
    bare.unwrap_or(name).parse().ok().or_else(with_port)
}

impl Accounts {
    /// The account of a holder; that of all for whom there is no place, if there is none.
    pub(crate) fn get(&mut self, holder: Holder, now: Duration) -> Arc<Account> {
        if let Some(account) = self.held.get(&holder) {
            return account.clone();
        }
        if self.held.len() >= ACCOUNTS_MAX && now.saturating_sub(self.swept_at) >= SWEEP_INTERVAL {
            self.swept_at = now;
            let now = nanos(now);
            self.held.retain(|_, account| Arc::strong_count(account) > 1 || !account.is_settled(now));
        }
        if self.held.len() >= ACCOUNTS_MAX {
            return self.shared.clone();
        }
        self.held.entry(holder).or_default().clone()
    }
}

/// A connection that counts for its address until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(Option<Arc<Account>>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        if let Some(account) = &self.0 {
            account.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// A request that counts until it is dropped.
pub(crate) struct UnderWay<'a>(Option<&'a AtomicUsize>);

impl UnderWay<'_> {
    /// One that is not counted.
    pub(crate) fn free() -> Self {
        Self(None)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(under_way) = self.0 {
            under_way.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Charges what costs so many nanoseconds. Two connections that were allowed at the same moment both pay.
fn add(until: &AtomicU64, cost: u64, now: u64) {
    let _ = until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |until| {
        Some(until.max(now).saturating_add(cost))
    });
}

/// Refuses whoever is ahead by more than `most` in one of these.
fn refuse_ahead<'a>(
    meters: impl Iterator<Item = &'a AtomicU64>,
    now: u64,
    most: Duration,
) -> Result<(), Exceeded> {
    let ahead = meters.map(|until| until.load(Ordering::Relaxed).saturating_sub(now)).max();
    match Duration::from_nanos(ahead.unwrap_or(0)).checked_sub(most) {
        Some(retry_after) if !retry_after.is_zero() => Err(Exceeded { retry_after }),
        _ => Ok(()),
    }
}

/// What counts as one address: of IPv6 the network, which one customer has as a whole.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}

/// Nanoseconds that `units` take at `rate` a second.
fn cost(units: usize, rate: usize) -> u64 {
    let cost = (units as u128).saturating_mul(1_000_000_000) / (rate.max(1) as u128);
    saturate(cost)
}

fn nanos(time: Duration) -> u64 {
    saturate(time.as_nanos())
}

#[cfg(test)]
mod tests;
