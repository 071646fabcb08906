//! What a run refuses, and what it tells of its progress.

use super::*;
use crate::options::arguments;

#[test]
fn a_server_that_is_given_takes_no_store_and_no_log() {
    let scenario =
        |server: &str| Scenario::parse(&format!("title = 'x'\nworkload = 'chat'\n{server}"), false).unwrap();
    let run = |own: &[&str]| arguments::<RunArgs>("run", &[&["x.toml"][..], own].concat()).unwrap();
    let given = scenario("server = 'http://127.0.0.1:1'\n");
    run(&[]).on_backends_of(&given).unwrap();
    for own in [["--postgres", "postgres://db/x"], ["--rabbitmq", "amqp://mq"]] {
        let error = run(&own).on_backends_of(&given).err().unwrap().to_string();
        assert!(error.contains("x.toml") && error.contains(own[0]), "{error}");
    }
}

#[test]
fn the_rest_takes_as_long_as_what_was_measured() {
    let progress = Progress { begun: Instant::now(), points: 4, repetitions: 2 };
    let at = |index, repetition, seconds| {
        let now = progress.begun + Duration::from_secs(seconds);
        progress.place(index, repetition, "clients 40", now).shown(now)
    };
    assert_eq!(at(0, 1, 5), "point 1 of 4, repetition 1 of 2, clients 40", "nothing was measured yet");
    assert_eq!(at(2, 1, 20), "point 3 of 4, repetition 1 of 2, clients 40, 60 seconds left in all");
    assert_eq!(at(3, 2, 70), "point 4 of 4, repetition 2 of 2, clients 40, 10 seconds left in all");
    let once = Progress { repetitions: 1, ..progress };
    let only = once.place(1, 1, "clients 80", once.begun).shown(once.begun);
    assert_eq!(only, "point 2 of 4, clients 80");
}
