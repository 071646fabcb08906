//! How often a password may be tried: for each account, and from each address, whether there is such an account or not.
//!
//! A holder may try as often as its limit says for one minute, at once if it likes, and then at that rate. Successes count
//! too: an account cannot fill the store with logins. What is refused does not count.

use std::net::IpAddr;
use std::time::Duration;

use hubbub_core::UserId;
use hubbub_core::invariant::saturate;
use parking_lot::Mutex;

use crate::rates::{Accounts, Exceeded, Holder, network};

/// In which the limit may be used up.
const PERIOD: Duration = Duration::from_secs(60);

/// Attempts each minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptLimits {
    /// With the name of one account.
    pub account: usize,
    /// From one address.
    pub address: usize,
}

#[derive(Debug)]
pub(crate) struct Attempts {
    limits: AttemptLimits,
    /// Locked from the check to the charge: those that come together are not all let through.
    accounts: Mutex<Accounts>,
}

impl Attempts {
    pub(crate) fn new(limits: AttemptLimits) -> Self {
        Self { limits, accounts: Mutex::default() }
    }

    /// Counts one attempt, or refuses it.
    pub(crate) fn count(&self, user: &UserId, address: IpAddr, now: Duration) -> Result<(), Exceeded> {
        let cost = |limit: usize| PERIOD / saturate::<_, u32>(limit.max(1));
        let (of_address, of_user) = (cost(self.limits.address), cost(self.limits.account));
        let mut accounts = self.accounts.lock();
        // Whoever tries one name after another takes no places for them.
        let address = accounts.get(Holder::Address(network(address)), now);
        address.check(of_address, now, PERIOD)?;
        let user = accounts.get(Holder::User(user.clone()), now);
        user.check(of_user, now, PERIOD)?;
        address.charge(of_address, now);
        user.charge(of_user, now);
        Ok(())
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
}
