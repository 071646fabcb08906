//! How often a password may be tried: for each account, and from each address, whether there is such an account or not.
//!
//! A holder may try as often as its limit says for one minute, at once if it likes, and then at that rate. Successes count
//! too: an account cannot fill the store with logins. What is refused does not count.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use hubbub_core::UserId;
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use crate::rates::{Exceeded, network};

/// In which the limit may be used up.
const PERIOD: Duration = Duration::from_secs(60);
/// Those who tried lately; some 100 bytes each. Those beyond count together.
const HOLDERS_MAX: usize = 100_000;
/// Time between two searches for those whose attempts are long ago.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Attempts each minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptLimits {
    /// With the name of one account.
    pub account: usize,
    /// From one address.
    pub address: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    Account(UserId),
    Address(IpAddr),
    /// All for whom there was no place.
    Others,
}

#[derive(Debug, Default)]
struct Held {
    /// The monotonic time up to which a holder's attempts are accounted for.
    until: HashMap<Holder, Duration>,
    swept_at: Duration,
}

#[derive(Debug)]
pub(crate) struct Attempts {
    limits: AttemptLimits,
    held: Mutex<Held>,
}

impl Attempts {
    pub(crate) fn new(limits: AttemptLimits) -> Self {
        Self { limits, held: Mutex::default() }
    }

    /// Counts one attempt, or refuses it.
    pub(crate) fn count(&self, user: &UserId, address: IpAddr, now: Duration) -> Result<(), Exceeded> {
        let mut held = self.held.lock();
        let sides = [
            (Holder::Account(user.clone()), self.limits.account),
            (Holder::Address(network(address)), self.limits.address),
        ]
        .map(|(holder, limit)| (held.place(holder, now), PERIOD / saturate::<_, u32>(limit.max(1))));
        for (holder, cost) in &sides {
            let until = held.until.get(holder).copied().unwrap_or_default();
            let ahead = until.saturating_sub(now).saturating_add(*cost);
            if let Some(retry_after) = ahead.checked_sub(PERIOD)
                && !retry_after.is_zero()
            {
                return Err(Exceeded { retry_after });
            }
        }
        for (holder, cost) in sides {
            let until = held.until.entry(holder).or_default();
            *until = (*until).max(now).saturating_add(cost);
        }
        Ok(())
    }
}

impl Held {
    /// Where a holder's attempts are counted.
    fn place(&mut self, holder: Holder, now: Duration) -> Holder {
        let is_full = self.until.len() >= HOLDERS_MAX;
        if is_full && now.saturating_sub(self.swept_at) >= SWEEP_INTERVAL {
            self.swept_at = now;
            self.until.retain(|_, until| *until > now);
        }
        let has_place = self.until.len() < HOLDERS_MAX || self.until.contains_key(&holder);
        if has_place { holder } else { Holder::Others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: AttemptLimits = AttemptLimits { account: 3, address: 5 };

    fn user(name: &str) -> UserId {
        UserId::new(name).unwrap()
    }

    fn at(second: u64) -> Duration {
        Duration::from_secs(1_000 + second)
    }

    #[test]
    fn an_account_is_tried_a_few_times_and_then_slowly() {
        let attempts = Attempts::new(LIMITS);
        let address = |last: u8| IpAddr::from([127, 0, 0, last]);
        for last in 1..=3 {
            attempts.count(&user("ada"), address(last), at(0)).unwrap();
        }
        // Also from an address that never tried.
        let exceeded = attempts.count(&user("ada"), address(4), at(0)).unwrap_err();
        assert_eq!(exceeded.retry_after, Duration::from_secs(20));
        attempts.count(&user("bob"), address(4), at(0)).unwrap();
        // What was refused did not count.
        attempts.count(&user("ada"), address(4), at(20)).unwrap();
        assert!(attempts.count(&user("ada"), address(4), at(20)).is_err());
    }

    #[test]
    fn an_address_tries_few_accounts() {
        let attempts = Attempts::new(LIMITS);
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        let neighbour: IpAddr = "2001:db8::2".parse().unwrap();
        for name in ["a", "b", "c", "d", "e"] {
            attempts.count(&user(name), address, at(0)).unwrap();
        }
        let exceeded = attempts.count(&user("f"), neighbour, at(0)).unwrap_err();
        assert_eq!(exceeded.retry_after, Duration::from_secs(12), "one customer has the network");
        attempts.count(&user("f"), IpAddr::from([127, 0, 0, 1]), at(0)).unwrap();
        attempts.count(&user("f"), address, at(12)).unwrap();
    }

    #[test]
    fn holders_are_bounded() {
        let account = |name: &str| Holder::Account(user(name));
        let until = (0..HOLDERS_MAX).map(|i| (account(&i.to_string()), at(60))).collect();
        let mut held = Held { until, swept_at: Duration::ZERO };
        assert_eq!(held.place(account("0"), at(0)), account("0"));
        assert_eq!(held.place(account("ada"), at(0)), Holder::Others);
        // Those whose attempts are long ago make room.
        assert_eq!(held.place(account("ada"), at(60)), account("ada"));
        assert!(held.until.is_empty());
    }
}
