use proptest::prelude::*;

use super::*;
use crate::clock::ManualClock;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;
const YEAR: i64 = 8_766 * HOUR;
const START: i64 = 1_700_000_000 * SECOND;

/// A machine whose clocks a test moves, and the steady clock over it.
struct Machine {
    clocks: Arc<ManualClock>,
    steady: SteadyClock,
}

impl Machine {
    fn new() -> Self {
        Self::over(Arc::new(ManualClock::at(Timestamp::from_micros(START))))
    }

    fn over(clocks: Arc<ManualClock>) -> Self {
        let steady = SteadyClock::new(clocks.clone(), TRUST_AFTER);
        Self { clocks, steady }
    }

    /// A start of the same machine by a store that knows this time.
    fn restarted(self, known: i64) -> Self {
        let machine = Self::over(self.clocks);
        machine.steady.begin_at(Some(Timestamp::from_micros(known)));
        machine
    }

    fn now(&self) -> i64 {
        self.steady.now().as_micros()
    }

    fn proven(&self) -> i64 {
        self.steady.proven().as_micros()
    }

    fn wall(&self) -> i64 {
        self.clocks.now().as_micros()
    }

    /// Lets time pass with a look each second, as maintenance does.
    fn pass(&self, micros: i64) {
        for _ in 0..micros / SECOND {
            self.clocks.advance_micros(SECOND);
            self.now();
        }
    }
}

#[test]
fn a_short_step_has_no_effect() {
    for step in [YEAR, -YEAR, HOUR, -HOUR, 2 * SECOND, -2 * SECOND] {
        let machine = Machine::new();
        machine.pass(10 * SECOND);
        machine.clocks.step_micros(step);
        machine.pass(59 * SECOND);
        assert_eq!((machine.now(), machine.proven()), (START + 69 * SECOND, START + 69 * SECOND), "{step}");
        assert_eq!(machine.steady.anomaly(), Some(ClockAnomaly::Stepped { micros: step }));
        machine.clocks.step_micros(-step);
        assert_eq!((machine.now(), machine.steady.anomaly()), (machine.wall(), None));
        machine.clocks.step_micros(step);
        machine.pass(59 * SECOND);
        assert_eq!(machine.now(), START + 128 * SECOND, "the time it was held before does not count");
    }
}

#[test]
fn a_step_that_is_held_is_followed() {
    for step in [YEAR, -YEAR, 2 * SECOND, -2 * SECOND] {
        let machine = Machine::new();
        machine.clocks.step_micros(step);
        machine.pass(61 * SECOND);
        assert_eq!((machine.now(), machine.proven()), (machine.wall(), machine.wall()), "{step}");
        assert_eq!(machine.steady.anomaly(), None);
    }
}

#[test]
fn drift_is_followed_at_once_and_no_faster_than_clocks_drift() {
    let machine = Machine::new();
    for _ in 0..600 {
        machine.clocks.step_micros(-10_000);
        machine.pass(SECOND);
        assert_eq!(machine.now(), machine.wall());
    }
    // Ten times as fast as that is no drift any more.
    for _ in 0..60 {
        machine.clocks.step_micros(100_000);
        machine.pass(SECOND);
    }
    assert!(machine.steady.anomaly().is_some());
}

#[test]
fn a_start_behind_what_the_store_knows_goes_on_from_there() {
    let machine = Machine::new().restarted(START + HOUR);
    assert_eq!((machine.now(), machine.proven()), (START + HOUR, START + HOUR));
    assert_eq!(machine.steady.anomaly(), Some(ClockAnomaly::Stepped { micros: -HOUR }));
    machine.pass(61 * SECOND);
    assert_eq!(machine.now(), machine.wall(), "the store may have been written by a clock that was ahead");
}

#[test]
fn a_start_after_a_short_time_out_of_service_is_proven() {
    let machine = Machine::new().restarted(START - HOUR);
    assert_eq!((machine.now(), machine.proven(), machine.steady.anomaly()), (START, START, None));
}

#[test]
fn a_start_far_ahead_of_the_store_proves_itself() {
    let machine = Machine::new().restarted(START - YEAR);
    assert_eq!((machine.now(), machine.proven()), (START, START - YEAR));
    assert_eq!(machine.steady.anomaly(), Some(ClockAnomaly::Unproven { micros: YEAR }));
    machine.pass(59 * SECOND);
    assert_eq!((machine.now(), machine.proven()), (machine.wall(), machine.wall() - YEAR));
    machine.pass(2 * SECOND);
    assert_eq!((machine.now(), machine.proven()), (machine.wall(), machine.wall()));
}

#[test]
fn a_wrong_clock_that_is_corrected_after_the_start_proves_nothing() {
    let machine = Machine::new().restarted(START - YEAR);
    machine.pass(15 * SECOND);
    machine.clocks.step_micros(-YEAR + HOUR / 2);
    assert_eq!(
        (machine.now(), machine.proven()),
        (machine.wall(), machine.wall()),
        "near what the store knows"
    );
    assert_eq!(machine.steady.anomaly(), None);
}

#[test]
fn a_store_that_is_opened_again_changes_nothing() {
    let machine = Machine::new();
    machine.steady.begin_at(None);
    machine.steady.begin_at(Some(Timestamp::from_micros(START - YEAR)));
    assert_eq!((machine.now(), machine.proven()), (START, START));
}

proptest! {
    /// Whatever the wall clock does, proven time is never later than what it held for the trust time, or than monotonic
    /// time and the drift there may be.
    #[test]
    fn nothing_is_proven_that_was_not_held(
        steps in proptest::collection::vec((2 * SECOND..2 * HOUR, any::<bool>(), 1_i64..40), 1..60),
    ) {
        let machine = Machine::new();
        for (step, is_back, seconds) in steps {
            let (now, passed) = (machine.now(), seconds * SECOND);
            machine.clocks.step_micros(if is_back { -step } else { step });
            machine.pass(passed);
            let moved = machine.now() - now;
            // No step is held for the trust time, so none is followed.
            prop_assert!((moved - passed).abs() <= 2 * SECOND, "{moved} {passed}");
            prop_assert_eq!(machine.now(), machine.proven());
        }
    }
}

/// A machine's clocks: whole milliseconds, and all digits.
struct Digits(Arc<ManualClock>);

impl Clock for Digits {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(in_ms(self.precise().as_micros()))
    }

    fn precise(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
}

#[test]
fn all_digits_are_those_of_the_clock_that_is_followed() {
    let clocks = Arc::new(ManualClock::at(Timestamp::from_micros(START + 999_999)));
    let steady = SteadyClock::new(Arc::new(Digits(clocks.clone())), TRUST_AFTER);
    let times = || (steady.now().as_micros(), steady.precise().as_micros());
    assert_eq!(times(), (START + 999_000, START + 999_999));
    for step in [HOUR, -HOUR] {
        clocks.step_micros(step);
        let (now, precise) = times();
        assert_eq!((now, precise), (START + 999_000, START + 999_000), "not followed yet");
        clocks.step_micros(-step);
        assert_eq!(times(), (START + 999_000, START + 999_999));
    }
}
