use super::*;

fn rates(limits: RateLimits) -> Rates {
    Rates::new(limits)
}

fn at(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn of_address(requests: Option<usize>, bytes: Option<usize>) -> RateLimits {
    RateLimits { address: Rate { requests, bytes }, ..RateLimits::default() }
}

/// How many requests of `bytes` pass at one time.
fn passing(rates: &Rates, charged: &Charged, bytes: usize, now: Duration) -> usize {
    (0..1_000).take_while(|_| rates.charge(charged, bytes, now).is_ok()).count()
}

#[test]
fn a_rate_holds_after_its_burst() {
    let rates = rates(of_address(Some(10), None));
    let charged = rates.charged(None, at("10.0.0.1"), ms(0));
    assert_eq!(passing(&rates, &charged, 1, ms(5_000)), 11, "a second's worth, and one");
    let refused = rates.charge(&charged, 1, ms(5_000)).unwrap_err();
    assert_eq!(refused.retry_after, ms(100));
    // What is refused is not charged.
    assert_eq!(passing(&rates, &charged, 1, ms(5_100)), 1);
    assert_eq!(passing(&rates, &charged, 1, ms(5_500)), 4);
    // Before a token is verified, the same is known of the address, and nothing is charged for asking.
    assert!(rates.check(&charged, ms(5_400)).is_err());
    assert_eq!(rates.check(&charged, ms(5_600)), Ok(()));
    assert_eq!(rates.check(&Charged::default(), ms(5_400)), Ok(()));
    // Another connection of the address has the same account; another address has its own.
    let again = rates.charged(None, at("::ffff:10.0.0.1"), ms(5_500));
    assert_eq!(passing(&rates, &again, 1, ms(5_500)), 0);
    let other = rates.charged(None, at("10.0.0.2"), ms(5_500));
    assert_eq!(passing(&rates, &other, 1, ms(5_500)), 11);
}

#[test]
fn what_is_larger_than_the_rate_passes_and_is_paid_for() {
    let rates = rates(of_address(None, Some(1_000)));
    let charged = rates.charged(None, at("10.0.0.1"), ms(0));
    assert!(rates.charge(&charged, 60_000, ms(0)).is_ok());
    let refused = rates.charge(&charged, 1, ms(1_000)).unwrap_err();
    assert_eq!(refused.retry_after, ms(58_000));
    assert_eq!(Problem::from(refused).retry_after_s, 59);
    assert!(rates.charge(&charged, 1, ms(59_000)).is_ok());
}

#[test]
fn bytes_that_are_known_later_are_no_other_request() {
    let rates = rates(of_address(Some(1), Some(1_000)));
    let charged = rates.charged(None, at("10.0.0.1"), ms(0));
    for _ in 0..2 {
        assert!(rates.charge(&charged, 0, ms(0)).is_ok(), "a second's worth, and one");
        assert!(rates.charge_bytes(&charged, 500, ms(0)).is_ok());
    }
    assert_eq!(rates.charge(&charged, 0, ms(0)).unwrap_err().retry_after, ms(1_000), "two were charged");
    // The bytes were, too.
    assert!(rates.charge_bytes(&charged, 500, ms(0)).is_ok());
    assert_eq!(rates.charge_bytes(&charged, 1, ms(0)).unwrap_err().retry_after, ms(500));
}

#[test]
fn users_and_networks_have_accounts() {
    let rate = Rate { requests: Some(1), bytes: None };
    let rates = rates(RateLimits { user: rate, ..RateLimits::default() });
    let ada = UserId::new("ada").unwrap();
    let (one, two) =
        (rates.charged(Some(&ada), at("::1"), ms(0)), rates.charged(Some(&ada), at("::2"), ms(0)));
    assert_eq!(passing(&rates, &one, 1, ms(0)), 2);
    assert_eq!(passing(&rates, &two, 1, ms(0)), 0, "the user is limited over all addresses");
    assert!(rates.charged(None, at("::1"), ms(0)).is_nobody());
    assert_eq!(network(at("2001:db8:1:2:3::9")), at("2001:db8:1:2::"));
    assert_eq!(network(at("192.0.2.7")), at("192.0.2.7"));
}

#[test]
fn connections_of_an_address_are_counted() {
    let proxies = vec!["127.0.0.0/8".parse().unwrap()];
    let rates = rates(RateLimits { connections: Some(2), trusted_proxies: proxies, ..RateLimits::default() });
    let open: Vec<_> = (0..2).map(|_| rates.connect(at("10.0.0.1"), ms(0)).unwrap()).collect();
    assert!(rates.connect(at("10.0.0.1"), ms(0)).is_none());
    assert!(rates.connect(at("10.0.0.2"), ms(0)).is_some());
    drop(open);
    assert!(rates.connect(at("10.0.0.1"), ms(0)).is_some());
    let of_proxy: Vec<_> = (0..5).map(|_| rates.connect(at("127.0.0.1"), ms(0))).collect();
    assert!(of_proxy.iter().all(Option::is_some), "a proxy has those of everybody");
}

#[test]
fn only_trusted_proxies_are_believed() {
    let proxies = vec!["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()];
    let rates = rates(RateLimits { trusted_proxies: proxies, ..RateLimits::default() });
    let seen = |peer: &str, forwarded: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, hyper::header::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        rates.client_address(at(peer), &headers).to_string()
    };
    assert_eq!(seen("192.0.2.1", &["198.51.100.1"]), "192.0.2.1", "not a proxy of ours");
    assert_eq!(seen("10.0.0.1", &[]), "10.0.0.1");
    assert_eq!(seen("10.0.0.1", &["198.51.100.1"]), "198.51.100.1");
    assert_eq!(seen("::1", &["203.0.113.9, 198.51.100.1, 10.0.0.7"]), "198.51.100.1", "the first is a claim");
    assert_eq!(seen("10.0.0.1", &["203.0.113.9", "198.51.100.1"]), "198.51.100.1", "several lines are one");
    assert_eq!(seen("10.0.0.1", &["198.51.100.1, nonsense"]), "10.0.0.1");
    for (named, address) in [
        ("198.51.100.1:4711", "198.51.100.1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("[198.51.100.1", "10.0.0.1"),
        ("198.51.100.1:port", "10.0.0.1"),
    ] {
        assert_eq!(seen("10.0.0.1", &[named]), address, "{named}");
    }
    assert_eq!(seen("10.0.0.1", &["é, 198.51.100.1"]), "198.51.100.1", "the claim may be any bytes");
    assert_eq!(seen("10.0.0.1", &["10.0.0.3, 10.0.0.2"]), "10.0.0.3");
}

#[test]
fn accounts_are_bounded() {
    let rates = rates(of_address(Some(1), None));
    let address = |n: u32| IpAddr::V4((0x0A00_0000 + n).into());
    for n in 0..u32::try_from(ACCOUNTS_MAX).unwrap() {
        let charged = rates.charged(None, address(n), ms(0));
        rates.charge(&charged, 1, ms(0)).unwrap();
    }
    let late = |n, now| rates.charged(None, address(n), now).address.unwrap();
    let shared = rates.accounts.lock().shared.clone();
    assert!(Arc::ptr_eq(&late(2_000_000, ms(500)), &shared), "all are in debt");
    // Once they have paid, there is place again.
    assert!(!Arc::ptr_eq(&late(2_000_001, ms(2_000)), &shared));
    assert!(rates.accounts.lock().held.len() < 10);
}
